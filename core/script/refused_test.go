package script_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/core/quota"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// do runs a command on a server.
func do(t *testing.T, rdb *redis.Client, words ...any) {
	t.Helper()
	if err := rdb.Do(t.Context(), words...).Err(); err != nil {
		t.Fatalf("%v: %v", words, err)
	}
}

// TestRefusedLoginsOpenTheBreakerAtOnce: 300 of 300 calls were sent, each by a connection of its own.
//
// Promise (Outages): Refused logins (wrong password, NOAUTH, NOPERM), refused writes (READONLY, MISCONF,
// NOREPLICAS) and servers without scripts open the breaker at once.
func TestRefusedLoginsOpenTheBreakerAtOnce(t *testing.T) {
	quiet(t)
	server := redistest.StartServer(t)
	admin := server.Client(t)
	do(t, admin, "acl", "setuser", "reader", "on", ">secret", "~*", "+get", "+ping")
	do(t, admin, "acl", "setuser", "writer", "on", ">secret", "~other:*", "+@all")
	for _, c := range []struct{ name, user, password, answer string }{
		{"a wrong password", "writer", "wrong", "WRONGPASS"},
		{"scripts are not allowed", "reader", "secret", "NOPERM"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: c.user, Password: c.password,
				ContextTimeoutEnabled: true})
			defer rdb.Close()
			e := core.New(rdb, core.WithObserver(guardtest.Ignore{}), core.WithDeadline(time.Minute))
			g := votes.New(e, "v", votes.Options{})
			sent := 0
			for i := range 300 {
				_, err := g.Check(t.Context(), core.Attempt{Actor: fmt.Sprint(i), Resource: "p"})
				if !strings.Contains(err.Error(), c.answer) || !strings.Contains(err.Error(), server.Addr()) {
					t.Fatalf("%v, want %s and the address", err, c.answer)
				}
				if !errors.Is(err, core.ErrBreakerOpen) {
					sent++
				}
			}
			if sent != 1 || e.Pending() != 0 {
				t.Errorf("%d calls were sent, %d are to be undone", sent, e.Pending())
			}
		})
	}
	t.Run("a key that is not allowed is about one call", func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "writer", Password: "secret"})
		defer rdb.Close()
		e := core.New(rdb, core.WithObserver(guardtest.Ignore{}), core.WithDeadline(time.Minute))
		g := votes.New(e, "v", votes.Options{})
		for i := range 20 {
			_, err := g.Check(t.Context(), core.Attempt{Actor: fmt.Sprint(i), Resource: "p"})
			if err == nil || errors.Is(err, core.ErrBreakerOpen) || e.Pending() != 0 {
				t.Fatalf("%v, %d to be undone", err, e.Pending())
			}
		}
	})
}

// TestReadsOfBansDoNotHideAReplica: a rule looks a ban up, which a replica answers, before it takes a unit,
// which a replica refuses.
func TestReadsOfBansDoNotHideAReplica(t *testing.T) {
	quiet(t)
	o := redistest.StartOutages(t)
	e := core.New(o.NewClient(true), core.WithObserver(guardtest.Ignore{}), core.WithDeadline(time.Minute))
	jail, g := bans.New(e, "b", bans.Options{}), limit.NewSlidingWindow(e, "w", limit.PerHour(100))
	guardtest.Check(t, jail, core.Attempt{Actor: "ann"})
	guardtest.Check(t, g, core.Attempt{Actor: "ann"})
	defer o.Begin("readonly")()
	looked, taken := 0, 0
	for i := range 100 {
		a := core.Attempt{Actor: fmt.Sprint(i)}
		if _, err := jail.Check(t.Context(), a); err == nil {
			looked++
		}
		if _, err := g.Check(t.Context(), a); !errors.Is(err, core.ErrBreakerOpen) {
			taken++
		}
	}
	if looked > 1 || taken > 1 {
		t.Errorf("%d look-ups and %d writes were sent, want one each", looked, taken)
	}
}

// sentScripts counts what a client sends, by the hash of the script.
type sentScripts struct {
	*redis.Client
	all atomic.Int64
}

func (c *sentScripts) Process(ctx context.Context, cmd redis.Cmder) error {
	c.all.Add(1)
	return c.Client.Process(ctx, cmd)
}

// TestRefusedClaimsAreNotUndone: 200 votes that a full Redis refused were undone by 1,200 calls. A refusal
// after a reply was lost is undone, since the first sending may have run.
func TestRefusedClaimsAreNotUndone(t *testing.T) {
	quiet(t)
	o := redistest.StartOutages(t)
	rdb := &sentScripts{Client: o.NewClient(true)}
	e := core.New(rdb, core.WithObserver(guardtest.Ignore{}), core.WithDeadline(time.Minute))
	ballots := votes.New(e, "v", votes.Options{})
	shares := quota.New(e, "q", quota.Options{Items: 5, Period: period.Daily(time.UTC)})
	sale := seckill.New(e, "s", seckill.Options{})
	openSale(t, sale, "tv", seckill.Sale{Stock: 5})
	for _, g := range []core.Guard{ballots, shares, sale} { // the scripts are known
		guardtest.Check(t, g, core.Attempt{Actor: "first", Resource: "tv", Item: "x"})
	}
	end := o.Begin("full")
	before := rdb.all.Load()
	for i := range 200 {
		for _, g := range []core.Guard{ballots, shares, sale} {
			a := core.Attempt{Actor: fmt.Sprint(i), Resource: "tv", Item: "x"}
			if _, err := g.Check(t.Context(), a); err == nil || !strings.Contains(err.Error(), "OOM") {
				t.Fatalf("%s: %v", g.Name(), err)
			}
		}
	}
	if n := rdb.all.Load() - before; n != 600 || e.Pending() != 0 {
		t.Errorf("%d calls for 600 attempts, %d pending", n, e.Pending())
	}
	end()
	wantTally(t, ballots, "tv", map[string]int64{"x": 1})
}

// TestRefusalsAfterALostReplyAreUndone: the vote was sent again, and only the second sending was refused. The
// first may have run.
func TestRefusalsAfterALostReplyAreUndone(t *testing.T) {
	quiet(t)
	for _, lost := range []bool{false, true} {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		defer rdb.Close()
		c := &refusing{Client: rdb, lost: lost}
		e := core.New(c, core.WithObserver(guardtest.Ignore{}), core.WithDeadline(time.Minute))
		_, err := votes.New(e, "v", votes.Options{}).Check(t.Context(), core.Attempt{Actor: "ann", Resource: "p"})
		if err == nil || !strings.Contains(err.Error(), "OOM") {
			t.Fatal(err)
		}
		if undone := e.Pending() != 0; undone != lost {
			t.Errorf("a reply was lost: %t; is undone: %t", lost, undone)
		}
		c.well.Store(true)
		redistest.Eventually(t, time.Minute, func() bool { return e.Pending() == 0 }, "the undo has ended")
	}
}

// refusing is a client whose server is full. It may lose the first reply.
type refusing struct {
	*redis.Client
	lost bool
	well atomic.Bool
}

func (c *refusing) Process(ctx context.Context, cmd redis.Cmder) error {
	err := error(answered("OOM command not allowed when used memory > 'maxmemory'."))
	switch {
	case c.well.Load():
		return allows(ctx, cmd)
	case c.lost:
		c.lost, err = false, io.ErrUnexpectedEOF
	}
	cmd.SetErr(err)
	return err
}
