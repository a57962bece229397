package redistest

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Outages is a test's own server, with the ways in which a Redis can be away. Its methods fail the test on
// errors, so call them on the test's goroutine.
type Outages struct {
	*Server // the one that clients reach; another one once "repointed" has ended

	t      testing.TB
	faults *Faults
	resets atomic.Pointer[string] // the address that accepts and resets connections; nil outside such an outage
	at     atomic.Pointer[string] // where the server's address leads, once it has been repointed
}

// OutageKinds names the ways. All but "full" make everything fail; a full server still reads and gives
// back. After two of them the connections that a client has are of no use, although new ones are:
//
//	repointed  the address leads to another server; the old one lives on as its replica, and refuses writes
//	vanished   the host is gone, or what is between: nothing arrives any more, and connections stay open
//
// A client with the Dialer of [Outages.OverTLS] does not see either that a server which has stopped has
// closed its connections.
var OutageKinds = []string{"stopped", "hanging", "resetting", "loading", "readonly", "repointed", "vanished",
	"full"}

// StartOutages starts a healthy server, with the config of [StartServer].
func StartOutages(t testing.TB, config ...string) *Outages {
	t.Helper()
	config = append([]string{"--enable-debug-command", "yes"}, config...)
	return &Outages{t: t, Server: StartServer(t, config...), faults: NewFaults(t)}
}

// NewClient returns a client that the outages affect. With obeys it ends calls when their contexts end.
func (o *Outages) NewClient(obeys bool) *redis.Client {
	opt := o.Options()
	opt.ContextTimeoutEnabled, opt.DialerRetries = obeys, 1
	return closing(o.t, redis.NewClient(opt))
}

// OverTLS returns a Dialer for connections by TLS, for [Outages.Options].
func (o *Outages) OverTLS() func(ctx context.Context, network, addr string) (net.Conn, error) {
	o.t.Helper()
	return o.faults.overTLS(o.t, o.dial)
}

// Options returns new options for a client that the outages affect: go-redis's defaults, without some
// commands on new connections.
func (o *Outages) Options() *redis.Options {
	opt := options(o.Addr()).Simple()
	opt.Dialer = o.dial
	return opt
}

// CutAll closes all connections of the clients. New ones can be made.
func (o *Outages) CutAll() { o.faults.CutAll() }

func (o *Outages) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if to := o.resets.Load(); to != nil {
		return new(net.Dialer).DialContext(ctx, network, *to) // directly, so that the client sees a reset
	}
	if to := o.at.Load(); to != nil {
		addr = *to
	}
	return o.faults.Dial(ctx, network, addr)
}

// Begin begins an outage of a kind, and returns the function that ends it.
func (o *Outages) Begin(kind string) (end func()) {
	o.t.Helper()
	switch kind {
	case "stopped":
		o.Kill()
		return o.Start
	case "hanging":
		o.Pause()
		return o.Resume
	case "resetting":
		return o.reset()
	case "loading":
		return o.load()
	case "readonly":
		primary := StartServer(o.t)
		primary.ReplicaOf(o.Server) // so that nothing is lost
		primary.do("replicaof", "no", "one")
		o.ReplicaOf(primary)
		return func() { o.do("replicaof", "no", "one") }
	case "repointed":
		return o.repoint()
	case "vanished":
		o.faults.Vanish(true)
		return func() { o.faults.Vanish(false) }
	case "full":
		o.do("config", "set", "maxmemory", "1")
		return func() { o.do("config", "set", "maxmemory", "0") }
	}
	o.t.Fatalf("redistest: no outage is called %q", kind)
	return nil
}

// repoint makes the server a replica of another one, which has its data. At the end its address leads there;
// connections to it stay.
func (o *Outages) repoint() (end func()) {
	heir := StartServer(o.t, "--enable-debug-command", "yes")
	heir.ReplicaOf(o.Server)
	heir.do("replicaof", "no", "one")
	o.ReplicaOf(heir)
	return func() {
		addr := heir.Addr()
		o.at.Store(&addr)
		o.Server = heir
	}
}

// do runs a command on the server itself.
func (s *Server) do(words ...any) {
	s.t.Helper()
	if err := s.p.admin.Do(s.t.Context(), words...).Err(); err != nil {
		s.t.Fatalf("redistest: %v: %v", words, err)
	}
}

// reset cuts all connections, and resets new ones as soon as the client sends something.
func (o *Outages) reset() (end func()) {
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		o.t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := ln.AcceptTCP()
			if err != nil {
				return
			}
			all.Go(func() {
				_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
				_, _ = conn.Read(make([]byte, 1))
				_ = conn.SetLinger(0)
				_ = conn.Close()
			})
		}
	})
	addr := ln.Addr().String()
	o.resets.Store(&addr)
	o.faults.CutAll()
	return func() {
		o.resets.Store(nil)
		_ = ln.Close()
		all.Wait()
	}
}

// load makes the server reload its data, as slowly as it can.
func (o *Outages) load() (end func()) {
	const ballast = "redistest-ballast:%d"
	pipe := o.p.admin.Pipeline()
	for i := range 5000 {
		pipe.Set(o.t.Context(), fmt.Sprintf(ballast, i), strings.Repeat("x", 1100), 10*time.Minute)
	}
	if _, err := pipe.Exec(o.t.Context()); err != nil {
		o.t.Fatal(err)
	}
	o.do("config", "set", "loading-process-events-interval-bytes", "1024")
	o.do("config", "set", "key-load-delay", "10000") // in microseconds
	patient := *options(o.Addr()).Simple()
	patient.ReadTimeout = time.Minute
	reloader := closing(o.t, redis.NewClient(&patient))
	reloaded := make(chan error, 1)
	go func() { reloaded <- reloader.Do(context.Background(), "debug", "reload").Err() }()
	Eventually(o.t, startTimeout, func() bool {
		err := o.p.admin.Get(o.t.Context(), "x").Err()
		return err != nil && isLoading(err)
	}, "the server is loading")
	return func() {
		o.do("config", "set", "key-load-delay", "0")
		if err := <-reloaded; err != nil {
			o.t.Errorf("redistest: DEBUG RELOAD: %v", err)
		}
	}
}
