package script

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/lua"
)

// This file looks at a server and at the connections that a client has to it, in the background.
//
// go-redis drops a connection only when a command on it has failed. After an outage all pooled connections
// may be useless, although they look as before. The host has vanished silently, a TLS server has closed its
// end, or the address leads to another server and the old one is now a replica. Calls would then find out
// about one connection at a time. So a probe takes all idle connections at once and, if none works, a new
// one. It uses the client as an application may: the client dials, and drops failed connections.

const (
	// probeNew is how long a probe waits for a new connection. It is longer than a deadline, so that
	// go-redis's retries of a dial end and the error names the cause, not a timeout.
	probeNew = 500 * time.Millisecond
	// probeRounds is how often a probe looks at pooled connections, as others may be made meanwhile.
	probeRounds = 3
	// probesMost is how many connections a round looks at.
	probesMost = 1024
)

// pooled is the client of one server, with its pool: *redis.Client.
type pooled interface {
	node
	PoolStats() *redis.PoolStats
	WithTimeout(timeout time.Duration) *redis.Client
}

// probed is what a probe has found.
type probed struct {
	err    error // nil: the server works. errNeither: nothing is known
	addr   string
	closed int // how many pooled connections the other side had closed
}

// prober probes servers.
type prober struct {
	*connection
	deadline time.Duration
	key      func(tag string) string // a key that never exists
}

// ofServers returns a function that probes the server of a key. It returns nil when the client can reserve no
// connection.
func (p prober) ofServers() func(node, key string) probed {
	find := nodes(p.rdb)
	if find == nil {
		return nil
	}
	if single, ok := p.rdb.(node); ok {
		if _, ok := single.(pooled); !ok {
			return nil
		}
	}
	return func(node, key string) probed {
		ctx, cancel := context.WithTimeout(context.Background(), p.deadline)
		defer cancel()
		server, err := find(ctx, key)
		if err != nil {
			return probed{err: errNeither} // the look-up has a breaker of its own
		}
		client, ok := server.(pooled)
		if !ok || node != "" && server.Options().Addr != node { // another server has the key now
			return probed{err: errNeither}
		}
		tag := tagIn(key)
		if tag == "" {
			tag = "probe"
		}
		found := p.probe(client, p.key(tag))
		if !errors.Is(found.err, errNeither) {
			found.err = p.named(found.addr, found.err)
		}
		return found
	}
}

// probe asks by all idle connections, and by a new one if there are none.
func (p prober) probe(server pooled, key string) (found probed) {
	found.addr = server.Options().Addr
	for range probeRounds {
		idle := int(min(server.PoolStats().IdleConns, probesMost))
		limit := p.deadline
		if idle == 0 {
			limit = max(limit, probeNew)
		}
		errs := ask(server, max(idle, 1), limit, key)
		found.err = best(errs)
		if idle == 0 {
			found.err = ofNew(server.Options(), found.err, limit)
			return found
		}
		found.closed += count(errs, isBroken)
		if found.err == nil || count(errs, isLost) == 0 {
			return found
		}
	}
	return found
}

// ofNew says what has not come in time. A plain server may leave a TLS handshake unanswered.
func ofNew(options *redis.Options, err error, limit time.Duration) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	by := ""
	if options.TLSConfig != nil {
		by = ", which begins with a TLS handshake,"
	}
	return fmt.Errorf("no new connection%s has answered within %v: %w", by, limit, err)
}

func count(errs []error, is func(error) bool) (n int) {
	for _, err := range errs {
		if is(err) {
			n++
		}
	}
	return n
}

// best returns the error of the outcome that says most for the server.
func best(errs []error) error {
	var worst error
	for _, err := range errs {
		switch {
		case err == nil:
			return nil
		case worst == nil || isLost(worst) && !isLost(err):
			worst = err
		}
	}
	return worst
}

// ask asks on n connections at the same time. They go back to the client when all have ended. Otherwise an
// answered connection would be asked again in place of another.
func ask(server pooled, n int, limit time.Duration, key string) []error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	client := server.WithTimeout(limit) // also where the client does not end commands with their context
	conns, errs := make([]*redis.Conn, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		conns[i] = client.Conn()
		all.Go(func() { errs[i] = askOne(ctx, conns[i], key) })
	}
	all.Wait()
	for _, conn := range conns {
		_ = conn.Close() // drops it, if its command has failed
	}
	return errs
}

// probeSource deletes a key.
var probeSource = lua.Source("core/delete")

// askOne asks as guards do: by a script that may write, because a replica refuses only that. It deletes a key
// that is never there, so it changes nothing.
func askOne(ctx context.Context, conn *redis.Conn, key string) (err error) {
	defer rescue(&err)
	cmd := redis.NewCmd(ctx, "eval", probeSource, 1, key)
	cmd.SetFirstKeyPos(3)
	_ = conn.Process(ctx, onceCmd{cmd})
	if errors.Is(cmd.Err(), redis.ErrClosed) {
		return redis.ErrClosed // by the application, for good
	}
	return outcomeOf(ctx, cmd.Err(), false)
}
