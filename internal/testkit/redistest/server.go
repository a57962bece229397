package redistest

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Server is a test's own redis-server, which the test may kill, pause and restart. Its methods fail the
// test on errors, so call them on the test's goroutine.
type Server struct {
	t testing.TB
	p *process
}

// StartServer starts a redis-server and stops it when the test ends. The server keeps nothing on disk
// unless config says so: further arguments of redis-server, such as "--appendonly", "yes" or "--maxmemory",
// "1mb".
func StartServer(t testing.TB, config ...string) *Server {
	t.Helper()
	Need(t, Program())
	dir := t.TempDir() // before the cleanup, hence removed after it
	p, err := launch(dir, config...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return &Server{t: t, p: p}
}

// Addr returns the server's host:port. It stays the same over restarts.
func (s *Server) Addr() string { return address(s.p.port) }

// Options returns new options for a client of the server, like [Backend.Options].
func (s *Server) Options() *redis.UniversalOptions { return options(s.Addr()) }

// Client returns a new client of the server, which waits for it for a minute and is closed when t ends.
func (s *Server) Client(t testing.TB) *redis.Client {
	t.Helper()
	return closing(t, redis.NewClient(patient(options(s.Addr())).Simple()))
}

// Running reports whether the process exists, paused or not.
func (s *Server) Running() bool {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return s.p.running()
}

// Kill ends the server with SIGKILL and returns when it is gone. A server that is
// not running stays so.
func (s *Server) Kill() { s.p.kill() }

// Stop ends the server with SIGTERM, so that it writes what its config tells it
// to keep, and returns when it is gone. A paused server is resumed for that.
func (s *Server) Stop() {
	s.t.Helper()
	if err := s.p.stop(); err != nil {
		s.t.Fatal(err)
	}
}

// Start starts a killed or stopped server again on the same port, in the same
// folder and with the same config, and returns when it answers and has loaded
// its data.
func (s *Server) Start() {
	s.t.Helper()
	err := s.p.start()
	if err != nil && !s.Running() {
		err = s.p.start() // someone may have tried the port at that moment
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// Pause stops the process with SIGSTOP: the kernel accepts connections, but nothing answers until
// [Server.Resume]. The server then executes what was sent meanwhile.
func (s *Server) Pause() { s.t.Helper(); s.signal("SIGSTOP", suspend) }

// Resume lets a paused server continue.
func (s *Server) Resume() { s.t.Helper(); s.signal("SIGCONT", resume) }

func (s *Server) signal(name string, send func(*os.Process) error) {
	s.t.Helper()
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if !s.p.running() {
		s.t.Fatalf("redistest: %s: the server on port %d is not running", name, s.p.port)
	}
	if err := send(s.p.cmd.Process); err != nil {
		s.t.Fatalf("redistest: %s: %v", name, err)
	}
}

// ReplicaOf makes the server a replica of the primary and returns when it has
// the primary's data and the link is up.
func (s *Server) ReplicaOf(primary *Server) {
	s.t.Helper()
	host, port, _ := strings.Cut(primary.Addr(), ":")
	if err := s.p.admin.ReplicaOf(s.t.Context(), host, port).Err(); err != nil {
		s.t.Fatalf("redistest: REPLICAOF %s: %v", primary.Addr(), err)
	}
	Eventually(s.t, startTimeout, func() bool {
		return s.p.replication("master_link_status:up")
	}, "the link of the replica "+s.Addr()+" to "+primary.Addr())
}

// Linger makes keys that have a TTL live for ten minutes at least, for tests that tell the scripts what time
// it is.
func Linger(t testing.TB, rdb redis.UniversalClient, keys ...string) {
	t.Helper()
	_, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for _, key := range keys {
			p.ExpireGT(t.Context(), key, 10*time.Minute)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
