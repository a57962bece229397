package script_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/core/quota"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// longChecks are guards whose checks are commands of more than ten arguments.
var longChecks = []struct {
	name string
	make func(t *testing.T, e *core.Engine) core.Guard
}{
	{"votes", func(_ *testing.T, e *core.Engine) core.Guard { return votes.New(e, "v", votes.Options{}) }},
	{"a sale", func(t *testing.T, e *core.Engine) core.Guard {
		g := seckill.New(e, "s", seckill.Options{})
		openSale(t, g, "p", seckill.Sale{Stock: 1000})
		return g
	}},
	{"a semaphore", func(_ *testing.T, e *core.Engine) core.Guard {
		return semaphore.New(e, "m", semaphore.Options{Max: 1000})
	}},
	{"three windows", func(_ *testing.T, e *core.Engine) core.Guard {
		return limit.NewFixedWindow(e, "l", limit.PerSecond(1000), limit.PerMinute(1000), limit.PerHour(1000))
	}},
	{"a quota", func(_ *testing.T, e *core.Engine) core.Guard {
		return quota.New(e, "q", quota.Options{Items: 1000, Period: period.Daily(time.UTC)})
	}},
	{"bans", func(_ *testing.T, e *core.Engine) core.Guard { return bans.New(e, "b", bans.Options{}) }},
}

// loginScene is a guard on a server whose logins the test changes.
type loginScene struct {
	t     *testing.T
	admin *redis.Client // logged in for good
	rdb   *redis.Client
	e     *core.Engine
	g     core.Guard
	n     atomic.Int64 // attempts
	sent  atomic.Int64 // scripts
	dials atomic.Int64
}

func newLoginScene(t *testing.T, server *redistest.Server, user, password string) *loginScene {
	s := &loginScene{t: t, admin: server.Client(t)}
	do(t, s.admin, "flushall")
	t.Cleanup(func() { _ = s.admin.ConfigSet(context.Background(), "requirepass", "").Err() })
	s.rdb = redis.NewClient(&redis.Options{Addr: server.Addr(), Username: user, Password: password,
		ContextTimeoutEnabled: true, DisableIdentity: true,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			s.dials.Add(1)
			return new(net.Dialer).DialContext(ctx, network, addr)
		}})
	closing(t, s.rdb)
	s.rdb.AddHook(s)
	s.e = core.New(s.rdb, core.WithObserver(guardtest.Ignore{}), core.WithDeadline(time.Minute))
	return s
}

func (s *loginScene) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *loginScene) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.count(cmd)
		return next(ctx, cmd)
	}
}

func (s *loginScene) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		s.count(cmds...)
		return next(ctx, cmds)
	}
}

func (s *loginScene) count(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		if strings.HasPrefix(cmd.Name(), "eval") {
			s.sent.Add(1)
		}
	}
}

// dropConnections has the server close all connections but its administrator's.
func (s *loginScene) dropConnections() {
	s.t.Helper()
	do(s.t, s.admin, "client", "kill", "type", "normal", "skipme", "yes")
	redistest.Eventually(s.t, time.Minute, func() bool {
		list, err := s.admin.ClientList(s.t.Context()).Result()
		return err == nil && strings.Count(list, "\n") == 1
	}, "the connections are closed")
}

// check makes one attempt.
func (s *loginScene) check() error {
	i := s.n.Add(1)
	_, err := s.g.Check(context.Background(), core.Attempt{Actor: fmt.Sprint(i), Resource: "p", Item: "x"})
	return err
}

// refuses makes 100 attempts, of which few may be sent, by few connections, and none is to be undone.
func (s *loginScene) refuses(why string) {
	s.t.Helper()
	sent, dials, begun := s.sent.Load(), s.dials.Load(), time.Now()
	if err := s.check(); err == nil || !strings.Contains(err.Error(), why) {
		s.t.Fatalf("%v, want %s", err, why)
	}
	for range 99 {
		if err := s.check(); !errors.Is(err, core.ErrBreakerOpen) {
			s.t.Fatalf("%v, want an open breaker", err)
		}
	}
	sent, dials = s.sent.Load()-sent, s.dials.Load()-dials
	if sent > 1 || dials > 10+s.probes(begun) || s.e.Pending() != 0 {
		s.t.Errorf("%d scripts were sent by %d connections, %d are to be undone", sent, dials, s.e.Pending())
	}
}

// probes returns how many connections the probes since then may have made: more on a slow machine.
func (s *loginScene) probes(since time.Time) int64 {
	return 10 * int64(time.Since(since)/script.BreakerPause)
}

// TestRefusedLoginsOfLongCommands: Redis does not read commands of more than ten arguments of clients that it
// does not know. Its answer to them was not known: each of 100 attempts was sent, and undone six times.
func TestRefusedLoginsOfLongCommands(t *testing.T) {
	quiet(t)
	server := redistest.StartServer(t)
	for _, c := range longChecks {
		t.Run(c.name, func(t *testing.T) {
			s := newLoginScene(t, server, "", "")
			s.g = c.make(t, s.e)
			if err := s.check(); err != nil {
				t.Fatal(err)
			}
			do(t, s.admin, "config", "set", "requirepass", "secret")
			s.dropConnections()
			s.refuses("unauthenticated")
			do(t, s.admin, "config", "set", "requirepass", "")
			redistest.Eventually(t, time.Minute, func() bool { return s.check() == nil }, "attempts are decided")
		})
	}
}

// TestLoginsThatAreRefusedLater: the user's login or rights are changed while connections are up.
func TestLoginsThatAreRefusedLater(t *testing.T) {
	quiet(t)
	server := redistest.StartServer(t)
	for i, c := range []struct {
		name   string
		change []any // to the user shop
		drops  bool  // connections, as the server does not drop them itself
		why    string
	}{
		{"another password", []any{"resetpass", ">other"}, true, "WRONGPASS"},
		{"switched off", []any{"off"}, true, "WRONGPASS"},
		{"no scripts", []any{"-@scripting"}, false, "NOPERM"},
		{"no commands", []any{"-@all"}, false, "NOPERM"},
	} {
		checks := longChecks
		if !redistest.All() {
			checks = checks[i : i+1]
		}
		for _, long := range checks {
			t.Run(c.name+"/"+long.name, func(t *testing.T) {
				s := newLoginScene(t, server, "shop", "secret")
				shop := func(rules ...any) { do(t, s.admin, append([]any{"acl", "setuser", "shop"}, rules...)...) }
				shop("reset", "on", ">secret", "~*", "&*", "+@all")
				s.g = long.make(t, s.e)
				if err := s.check(); err != nil {
					t.Fatal(err)
				}
				shop(c.change...)
				if c.drops {
					s.dropConnections()
				}
				s.refuses(c.why)
				shop("on", ">secret", "+@all")
				redistest.Eventually(t, time.Minute, func() bool { return s.check() == nil }, "attempts are decided")
			})
		}
	}
}

// TestManyCallersWithoutALogin: 500 votes in 2 s made 3,007 connections, and 1,791 more in the 6 s after
// them. Callers whose connection another one has just been refused on hear nothing but its end.
func TestManyCallersWithoutALogin(t *testing.T) {
	quiet(t)
	const callers = 8
	each := 20
	if redistest.All() {
		each = 100
	}
	server := redistest.StartServer(t)
	for _, c := range longChecks {
		t.Run(c.name, func(t *testing.T) {
			s := newLoginScene(t, server, "", "")
			s.g = c.make(t, s.e)
			if err := s.check(); err != nil {
				t.Fatal(err)
			}
			do(t, s.admin, "config", "set", "requirepass", "secret")
			s.dropConnections()
			sent, dials, begun := s.sent.Load(), s.dials.Load(), time.Now()
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					for range each {
						if s.check() == nil {
							t.Error("an attempt was decided")
						}
					}
				})
			}
			all.Wait()
			sent, dials = s.sent.Load()-sent, s.dials.Load()-dials
			if sent > 4*callers || dials > 4*callers+s.probes(begun) {
				t.Errorf("%d scripts were sent by %d connections for %d attempts", sent, dials, callers*each)
			}
			do(t, s.admin, "config", "set", "requirepass", "")
			redistest.Eventually(t, time.Minute, func() bool { return s.check() == nil && s.e.Pending() == 0 },
				"attempts are decided, and nothing is left to be undone")
		})
	}
}

// TestServersWithoutScriptsOpenTheBreakerAtOnce: each claim was sent, and undone until its time was over.
func TestServersWithoutScriptsOpenTheBreakerAtOnce(t *testing.T) {
	quiet(t)
	server := redistest.StartServer(t, "--rename-command", "EVALSHA", "", "--rename-command", "EVAL", "")
	for _, c := range longChecks {
		if c.name == "a sale" {
			continue // it cannot be opened
		}
		t.Run(c.name, func(t *testing.T) {
			s := newLoginScene(t, server, "", "")
			s.g = c.make(t, s.e)
			s.refuses("unknown command")
		})
	}
}
