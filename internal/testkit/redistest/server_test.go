package redistest

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func listening(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	return err == nil && conn.Close() == nil
}

func TestRestartKeepsDataUnderAppendonly(t *testing.T) {
	s := StartServer(t, "--appendonly", "yes", "--appendfsync", "always")
	c, addr := s.Client(t), s.Addr()
	for name, end := range map[string]func(){"Stop": s.Stop, "Kill": s.Kill} {
		if err := c.Set(t.Context(), name, "kept", 0).Err(); err != nil {
			t.Fatal(err)
		}
		end()
		if s.Running() {
			t.Fatalf("%s: still running", name)
		}
		if listening(addr) {
			t.Fatalf("%s: the server still listens", name)
		}
		s.Start()
		if got, err := c.Get(t.Context(), name).Result(); got != "kept" || err != nil {
			t.Errorf("after %s and Start: %q, %v", name, got, err)
		}
	}
	if s.Addr() != addr {
		t.Errorf("address went from %s to %s", addr, s.Addr())
	}
}

func TestRestartWithoutAppendonlyLosesData(t *testing.T) {
	s := StartServer(t)
	c := s.Client(t)
	if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	s.Kill() // a dead server stays dead
	s.Start()
	if n, err := c.DBSize(t.Context()).Result(); n != 0 || err != nil {
		t.Errorf("DBSIZE = %d, %v; want 0", n, err)
	}
}

func TestConfigReachesTheServer(t *testing.T) {
	c := StartServer(t, "--maxmemory", "3mb", "--maxmemory-policy", "noeviction").Client(t)
	if got, err := c.ConfigGet(t.Context(), "maxmemory").Result(); got["maxmemory"] != "3145728" || err != nil {
		t.Errorf("maxmemory = %v, %v", got, err)
	}
}

func TestAServerWithAPasswordStarts(t *testing.T) {
	c := StartServer(t, "--requirepass", "secret").Client(t)
	if err := c.Ping(t.Context()).Err(); err == nil {
		t.Error("PING without the password was answered")
	}
}

func TestPausedServerNeverAnswers(t *testing.T) {
	s := StartServer(t)
	opt := options(s.Addr()).Simple()
	opt.ContextTimeoutEnabled = true
	c := closing(t, redis.NewClient(opt))
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Ping(ctx).Err(); err == nil {
		t.Error("a paused server answered")
	}
	if !s.Running() {
		t.Error("a paused server is not running")
	}
	s.Resume()
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Errorf("after Resume: %v", err)
	}
	s.Pause() // the cleanup copes with it
}

func TestStopOfAPausedServer(t *testing.T) {
	s := StartServer(t)
	s.Pause()
	s.Stop()
	if s.Running() {
		t.Error("still running")
	}
}

func TestReplicaFollowsItsPrimary(t *testing.T) {
	primary, replica := StartServer(t), StartServer(t)
	p, r := primary.Client(t), replica.Client(t)
	if err := p.Set(t.Context(), "before", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	replica.ReplicaOf(primary)
	if got, err := r.Get(t.Context(), "before").Result(); got != "1" || err != nil {
		t.Errorf("on the replica: %q, %v", got, err)
	}
	if err := p.Set(t.Context(), "after", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := p.Wait(t.Context(), 1, 5*time.Second).Result(); n != 1 || err != nil {
		t.Errorf("WAIT = %d, %v; want 1", n, err)
	}
}
