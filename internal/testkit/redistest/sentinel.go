package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	sentinelMaster = "gatehouse" // the name of what the sentinels watch
	sentinelCount  = 3

	// calm is how long a primary may be silent while no test expects its death. A failover from a primary that
	// only had no processor for a moment loses what its clients go on writing to it.
	calm = 10 * time.Minute
)

// SentinelServers is a test's own primary with replicas, and three sentinels that watch it. They fail over
// when they are told to ([SentinelServers.Failover]), and from a silent primary while the test awaits that
// ([SentinelServers.AwaitFailover]): at other times a busy machine would look like an outage. Its methods
// fail the test on errors, so call them on the test's goroutine.
type SentinelServers struct {
	// Servers are the primary of the beginning, and its replicas.
	Servers []*Server
	// Sentinels are the three sentinels. Kill, Pause and so on work on them too.
	Sentinels []*Server

	t testing.TB
}

// StartSentinels starts a primary with some replicas, and three sentinels that know each other and them. All
// are stopped when the test ends. config is that of the primary and the replicas, as in [StartServer]. It
// takes about a second.
func StartSentinels(t testing.TB, replicas int, config ...string) *SentinelServers {
	t.Helper()
	s := &SentinelServers{t: t}
	for range 1 + replicas {
		s.Servers = append(s.Servers, StartServer(t, config...))
	}
	for _, replica := range s.Servers[1:] {
		replica.ReplicaOf(s.Servers[0])
	}
	procs, errs := make([]*process, sentinelCount), make([]error, sentinelCount)
	dir := t.TempDir()
	var all sync.WaitGroup
	for i := range procs {
		all.Go(func() { procs[i], errs[i] = launchSentinel(dir, s.Servers[0]) })
	}
	all.Wait()
	for _, p := range procs {
		if p != nil {
			t.Cleanup(p.close)
			s.Sentinels = append(s.Sentinels, &Server{t: t, p: p})
		}
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	s.await("every sentinel knows the others and the replicas", func(state map[string]string) bool {
		return state["flags"] == "master" && state["num-slaves"] == strconv.Itoa(replicas) &&
			state["num-other-sentinels"] == strconv.Itoa(sentinelCount-1)
	})
	return s
}

// launchSentinel starts a sentinel in its own folder below parent. One that sees the primary dead is enough
// to begin a failover; to lead takes the votes of two.
func launchSentinel(parent string, primary *Server) (*process, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	p := newProcess(parent, port, nil)
	file := filepath.Join(p.dir, "sentinel.conf") // a sentinel writes into its file what it learns
	text := fmt.Sprintf("sentinel monitor %[1]s 127.0.0.1 %[2]d 1\n"+
		"sentinel down-after-milliseconds %[1]s %[3]d\nsentinel failover-timeout %[1]s 3000\n",
		sentinelMaster, primary.p.port, calm.Milliseconds())
	err = os.MkdirAll(p.dir, 0o700)
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o600)
	}
	if err != nil {
		return nil, err
	}
	p.args = append([]string{file}, append(p.args, "--sentinel")...)
	if err := p.start(); err != nil {
		p.close()
		return nil, err
	}
	ctx, cancel := shortContext()
	defer cancel()
	// They ask and tell more often than each second. Servers before Redis 7.0 cannot be told so, and take
	// longer. What claims to be a primary for four publish periods, and is none, becomes a replica: this has to
	// be longer than a promotion takes.
	_ = p.admin.Do(ctx, "sentinel", "debug", "ask-period", "100", "info-period", "300", "publish-period", "500",
		"election-timeout", "1000", "tilt-period", "1000").Err()
	return p, nil
}

// Options returns new options for a client that asks the sentinels for the primary, like [Backend.Options].
func (s *SentinelServers) Options() *redis.UniversalOptions {
	var addrs []string
	for _, sentinel := range s.Sentinels {
		addrs = append(addrs, sentinel.Addr())
	}
	opt := options(addrs...)
	opt.MasterName = sentinelMaster
	return opt
}

// Client returns a new client of the primary, whichever server that is, which is closed when t ends.
func (s *SentinelServers) Client(t testing.TB) *redis.Client {
	t.Helper()
	return closing(t, redis.NewFailoverClient(s.Options().Failover()))
}

// Primary returns the server that the first running sentinel takes for the primary. For a moment after its
// death that is still the dead one: see [SentinelServers.AwaitFailover].
func (s *SentinelServers) Primary() *Server {
	s.t.Helper()
	for _, sentinel := range s.Sentinels {
		state := sentinel.monitored()
		for _, server := range s.Servers {
			if strconv.Itoa(server.p.port) == state["port"] {
				return server
			}
		}
	}
	s.t.Fatal("redistest: no sentinel knows the primary")
	return nil
}

// monitored is what a sentinel knows about the primary. It is empty where the sentinel does not answer.
func (s *Server) monitored() map[string]string {
	if !s.Running() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	cmd := redis.NewMapStringStringCmd(ctx, "sentinel", "master", sentinelMaster)
	_ = s.p.admin.Process(ctx, cmd) // an error leaves it empty
	return cmd.Val()
}

// Failover tells a sentinel to replace the primary, as operators do (SENTINEL FAILOVER), and returns the new
// primary once it is one. The former primary becomes its replica. Until it does, it goes on answering those
// who have not heard of the new one.
func (s *SentinelServers) Failover() *Server {
	s.t.Helper()
	old := s.Primary()
	Eventually(s.t, startTimeout, func() bool { // NOGOODSLAVE until the last failover is over
		ctx, cancel := shortContext()
		defer cancel()
		return s.Sentinels[0].p.admin.Do(ctx, "sentinel", "failover", sentinelMaster).Err() == nil
	}, "a sentinel begins the failover")
	s.awaitOther(old)
	return s.followed(old)
}

// AwaitFailover lets the sentinels take the primary for dead once it has been silent for a third of a second.
// It waits until every running sentinel has another primary than old, all running servers but old are its
// replicas, and it takes writes. It returns that primary.
func (s *SentinelServers) AwaitFailover(old *Server) *Server {
	s.t.Helper()
	// One is enough to begin. If all stood for election at once, none would be elected, and the next try is
	// seconds later.
	i := slices.IndexFunc(s.Sentinels, (*Server).Running)
	if i < 0 {
		s.t.Fatal("redistest: no sentinel runs")
	}
	leader := s.Sentinels[i]
	// One that finds no replica to promote tries again seconds later. It connects once a second to those that
	// came back.
	Eventually(s.t, startTimeout, func() bool { return s.hasReplicas(leader, old) }, "replicas to promote")
	leader.patience(300 * time.Millisecond)
	s.awaitOther(old)
	leader.patience(calm)
	return s.followed(old)
}

// hasReplicas reports whether all running servers but the primary have answered the sentinel.
func (s *SentinelServers) hasReplicas(sentinel, primary *Server) bool {
	ctx, cancel := shortContext()
	defer cancel()
	cmd := redis.NewMapStringStringSliceCmd(ctx, "sentinel", "replicas", sentinelMaster)
	_ = sentinel.p.admin.Process(ctx, cmd) // an error leaves it empty
	answered := map[string]bool{}
	for _, replica := range cmd.Val() {
		answered[replica["port"]] = replica["flags"] == "slave" && replica["last-ping-sent"] == "0"
	}
	return !slices.ContainsFunc(s.Servers, func(server *Server) bool {
		return server != primary && server.Running() && !answered[strconv.Itoa(server.p.port)]
	})
}

// patience tells a sentinel how long the primary may be silent before it takes it for dead.
func (s *Server) patience(silence time.Duration) {
	s.t.Helper()
	ctx, cancel := shortContext()
	defer cancel()
	err := s.p.admin.Do(ctx, "sentinel", "set", sentinelMaster, "down-after-milliseconds",
		silence.Milliseconds()).Err()
	if err != nil {
		s.t.Fatalf("redistest: SENTINEL SET at %s: %v", s.Addr(), err)
	}
}

// awaitOther waits until every running sentinel has another primary than old.
func (s *SentinelServers) awaitOther(old *Server) {
	s.t.Helper()
	s.await("another primary than "+old.Addr(), func(state map[string]string) bool {
		return state["port"] != "" && state["port"] != strconv.Itoa(old.p.port)
	})
}

// followed waits until no sentinel takes the primary for dead or replaces it, all running servers but old are
// its replicas, and it takes writes. It returns the primary.
func (s *SentinelServers) followed(old *Server) *Server {
	s.t.Helper()
	s.await("no failover", func(state map[string]string) bool { return state["flags"] == "master" })
	primary := s.Primary()
	Eventually(s.t, startTimeout, func() bool {
		for _, server := range s.Servers {
			switch {
			case server == old || !server.Running():
			case server == primary && !server.p.replication("role:master"),
				server != primary && !server.p.replication("role:slave", "master_link_status:up",
					fmt.Sprint("master_port:", primary.p.port)):
				return false
			}
		}
		return true
	}, "all follow "+primary.Addr())
	return primary
}

// await waits until what each running sentinel knows is as it should be.
func (s *SentinelServers) await(what string, right func(state map[string]string) bool) {
	s.t.Helper()
	Eventually(s.t, startTimeout, func() bool {
		for _, sentinel := range s.Sentinels {
			if sentinel.Running() && !right(sentinel.monitored()) {
				return false
			}
		}
		return true
	}, what)
}
