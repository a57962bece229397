package edge

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/connect"
)

// event is what one server has told.
type event struct {
	addr string
	told told
	keys []string // may have changed
	err  error    // of failed
}

// told says what kind of event it is.
type told int

const (
	changed told = iota // some keys may have changed
	tracked             // from now on the server tells of changes; what was before is unknown
	listed              // all keys of the server have been told
	failed              // the server does not tell
)

// server is a server that is followed.
type server struct {
	stop   context.CancelFunc
	listed bool
	err    error
}

// follower keeps a mirror as Redis is.
type follower struct {
	*mirror
	events  chan event
	servers map[string]*server
	running sync.WaitGroup
	doubted map[string]bool // keys to be read
	moving  []string        // keys to be read later, because their slot moves
	lost    error           // why the masters are unknown
}

// follow follows Redis until the context ends.
func (m *mirror) follow(ctx context.Context) {
	f := follower{mirror: m, events: make(chan event), servers: map[string]*server{}, doubted: map[string]bool{}}
	defer f.running.Wait()
	tick := time.NewTicker(2 * again)
	defer tick.Stop()
	f.find(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-f.events:
			f.hear(e)
			f.hearMore()
		case <-tick.C:
			f.find(ctx)
			f.doubt(f.moving)
			f.moving = nil
		}
		f.tell(f.readDoubted(ctx))
	}
}

// find follows the masters of now, and no others.
func (f *follower) find(ctx context.Context) {
	masters, err := f.masters(ctx)
	if f.lost = err; err != nil {
		return
	}
	for addr, s := range f.servers {
		if masters[addr] == nil {
			s.stop()
			delete(f.servers, addr)
		}
	}
	for addr, client := range masters {
		if f.servers[addr] == nil {
			ctx, stop := context.WithCancel(ctx)
			f.servers[addr] = &server{stop: stop}
			l := listener{f.mirror, addr, client, f.events}
			f.running.Go(func() { l.listen(ctx) })
		}
	}
}

func (f *follower) hear(e event) {
	s := f.servers[e.addr]
	if s == nil {
		return
	}
	f.doubt(e.keys)
	switch e.told {
	case tracked:
		s.listed, s.err = false, nil
		f.doubt(f.known())
		f.doubt([]string{f.prefix + "}"}) // nobody's: a user who may not read bans is told before there is one
	case listed:
		s.listed = true
	case failed:
		s.err = e.err
	case changed:
	}
}

// hearMore hears what is there already, so that it is read in one call.
func (f *follower) hearMore() {
	for len(f.doubted) < scanned {
		select {
		case e := <-f.events:
			f.hear(e)
		default:
			return
		}
	}
}

func (f *follower) doubt(keys []string) {
	for _, key := range keys {
		f.doubted[key] = true
	}
}

// readDoubted reads what may have changed.
func (f *follower) readDoubted(ctx context.Context) error {
	if len(f.doubted) == 0 {
		return nil
	}
	keys := make([]string, 0, len(f.doubted))
	for key := range f.doubted {
		keys = append(keys, key)
	}
	moving, err := f.read(ctx, keys)
	if err == nil {
		f.moving = append(f.moving, moving...)
		clear(f.doubted)
	}
	return err
}

// tell tells the mirror how things are.
func (f *follower) tell(err error) {
	complete := len(f.servers) > 0
	err = cmp.Or(err, f.lost)
	for _, s := range f.servers {
		err = cmp.Or(err, s.err)
		complete = complete && s.listed
	}
	f.mu.Lock()
	f.err, f.complete = err, complete && err == nil
	f.mu.Unlock()
}

// listener listens to what one server tells of changed keys.
type listener struct {
	*mirror
	addr   string
	client *redis.Client
	events chan<- event
}

func (l *listener) send(ctx context.Context, e event) error {
	e.addr = l.addr
	select {
	case l.events <- e:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// listen listens until the context ends. A connection that is lost and made again at once is no failure.
func (l *listener) listen(ctx context.Context) {
	rdb := connect.Tracking(l.client, l.prefix)
	defer func() { _ = rdb.Close() }()
	for {
		heard, err := l.session(ctx, rdb)
		if !heard {
			_ = l.send(ctx, event{told: failed, err: err})
		}
		if !wait(ctx, again) {
			return
		}
	}
}

// quiet is how long a server may say nothing until it is asked for a sign of life, and then until it has
// failed.
const quiet = 2 * time.Second

// session listens on one connection until it fails, and reports whether the last thing heard was an answer.
func (l *listener) session(ctx context.Context, rdb *redis.Client) (heard bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var listing sync.WaitGroup
	defer listing.Wait()
	defer cancel()
	subscription := rdb.Subscribe(ctx, connect.Invalidations)
	defer func() { _ = subscription.Close() }()
	defer context.AfterFunc(ctx, func() { _ = subscription.Close() })() // ends a call of ReceiveTimeout
	for asked := false; ; {
		message, err := subscription.ReceiveTimeout(ctx, quiet)
		if timeout := interface{ Timeout() bool }(nil); errors.As(err, &timeout) && timeout.Timeout() &&
			heard && !asked && ctx.Err() == nil {
			asked = true
			_ = subscription.Ping(ctx)
			continue
		}
		if err != nil {
			return heard && !asked, err
		}
		asked = false
		if err := l.understand(ctx, message, func() { listing.Go(func() { l.list(ctx, cancel) }) }); err != nil {
			return heard, err
		}
		heard = true
	}
}

// understand hands on what a message says. list begins to list the keys of the server.
func (l *listener) understand(ctx context.Context, message any, list func()) error {
	switch message := message.(type) {
	case *redis.Subscription:
		err := l.send(ctx, event{told: tracked})
		list()
		return err
	case *redis.Message:
		var keys []string
		for _, key := range message.PayloadSlice {
			if l.isBan(key) {
				keys = append(keys, key)
			}
		}
		if len(keys) > 0 {
			return l.send(ctx, event{told: changed, keys: keys})
		}
	}
	return nil
}

// list tells of all keys of the server. If that fails, it ends the session.
func (l *listener) list(ctx context.Context, end context.CancelFunc) {
	err := l.scan(ctx, l.client, func(keys []string) error {
		return l.send(ctx, event{told: changed, keys: keys})
	})
	if err == nil {
		err = l.send(ctx, event{told: listed})
	}
	if err != nil {
		_ = l.send(ctx, event{told: failed, err: err})
		end()
	}
}
