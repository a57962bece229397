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
	*Server

	t      testing.TB
	faults *Faults
	resets atomic.Pointer[string] // the address that accepts and resets connections; nil outside such an outage
}

// OutageKinds names the ways. All but "full" make everything fail; a full server still reads and gives
// back.
var OutageKinds = []string{"stopped", "hanging", "resetting", "loading", "readonly", "full"}

// StartOutages starts a healthy server.
func StartOutages(t testing.TB) *Outages {
	t.Helper()
	return &Outages{t: t, Server: StartServer(t, "--enable-debug-command", "yes"), faults: NewFaults(t)}
}

// NewClient returns a client that the outages affect. With obeys it ends calls when their contexts end.
func (o *Outages) NewClient(obeys bool) *redis.Client {
	opt := options(o.Addr()).Simple()
	opt.ContextTimeoutEnabled, opt.DialerRetries, opt.Dialer = obeys, 1, o.dial
	return closing(o.t, redis.NewClient(opt))
}

func (o *Outages) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if to := o.resets.Load(); to != nil {
		return new(net.Dialer).DialContext(ctx, network, *to) // directly, so that the client sees a reset
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
	case "full":
		o.do("config", "set", "maxmemory", "1")
		return func() { o.do("config", "set", "maxmemory", "0") }
	}
	o.t.Fatalf("redistest: no outage is called %q", kind)
	return nil
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
