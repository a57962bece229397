package seckill

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/timed"
	"github.com/gatehouse-go/gatehouse/lua"
)

// ackedSale returns an Acked guard with a long time to wait.
func ackedSale(t testing.TB, rdb script.Client, options ...core.Option) *Guard {
	t.Helper()
	e := core.New(rdb, append([]core.Option{core.WithDeadline(time.Minute),
		core.WithObserver(guardtest.Ignore{})}, options...)...)
	return New(e, "s", Options{Durability: Acked, AckWithin: 50 * time.Second})
}

// hooks sees commands before a client sends them: single ones, and of a pipeline the last one.
type hooks func(cmd redis.Cmder)

func (h hooks) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hooks) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h(cmd)
		return next(ctx, cmd)
	}
}

func (h hooks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h(cmds[len(cmds)-1])
		return next(ctx, cmds)
	}
}

// TestAckedReplayWrites: WAIT waits for the writes of its own connection, so a replay must write something
// that reaches the replica. What WAIT does for a connection without writes depends on the server's version.
func TestAckedReplayWrites(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	openSale(t, p.patient, "tv", Sale{Stock: 5})
	rdb, replica := p.primary.Client(t), p.replica.Client(t)
	touched := func() (calls int) {
		for line := range strings.Lines(replica.Info(t.Context(), "commandstats").Val()) {
			if _, err := fmt.Sscanf(line, "cmdstat_pexpireat:calls=%d,", &calls); err == nil {
				return calls
			}
		}
		return 0
	}
	buy := core.Attempt{Actor: "ann", Resource: "tv", ID: "op"}
	d := guardtest.Check(t, p.patient, buy)
	again := func(what string, f func() error) {
		t.Helper()
		before, ttl := touched(), rdb.PExpireTime(t.Context(), p.patient.saleKeys("tv")[0]).Val()
		if err := f(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if got := touched() - before; got != 1 {
			t.Errorf("%s: the replica heard of %d touches, want 1", what, got)
		}
		if now := rdb.PExpireTime(t.Context(),
			p.patient.saleKeys("tv")[0]).Val(); (now - ttl).Abs() > 10*time.Millisecond {
			// (A touch reads what is left and sets it again, so it may cost a millisecond.)
			t.Errorf("%s: the sale is kept until %v, and was until %v", what, now, ttl)
		}
	}
	again("a replay with its call",
		func() error { _, err := p.patient.Check(t.Context(), d.Attempt); return err })
	guardtest.Settle(t, p.patient, d, core.Commit)
	again("a sold replay", func() error { _, err := p.patient.Check(t.Context(), d.Attempt); return err })
	again("confirm", func() error { return p.patient.Settle(t.Context(), d, core.Commit) })
	again("open", func() error { _, err := p.patient.Open(t.Context(), "tv", Sale{Stock: 5}); return err })
	unknown := core.Attempt{Actor: "ann", Resource: "tv", ID: "unknown"}
	again("cancel", func() error { _, err := p.patient.Cancel(t.Context(), unknown); return err })
	if err := p.patient.Close(t.Context(), "tv"); err != nil {
		t.Error(err)
	}
	again("close", func() error { return p.patient.Close(t.Context(), "tv") })
	before := touched()
	guardtest.WantReason(t, guardtest.Check(t, p.patient, core.Attempt{Actor: "bob", Resource: "tv"}),
		core.ReasonClosed)
	if now := touched(); now != before {
		t.Errorf("a refusal wrote something: %d touches, and %d before", now, before)
	}
}

// TestAckedLostReplies loses the script's reply, which is sent again, and the one of WAIT, which is not.
func TestAckedLostReplies(t *testing.T) {
	p := newPair(t)
	faults := redistest.NewFaults(t)
	rdb := redis.NewClient(&redis.Options{
		Addr: p.primary.Addr(), Dialer: faults.Dial, DisableIdentity: true, ReadTimeout: time.Minute,
	})
	t.Cleanup(func() { _ = rdb.Close() })
	g := ackedSale(t, rdb)
	openSale(t, g, "tv", Sale{Stock: 5})
	if err := g.Engine().Preload(t.Context()); err != nil {
		t.Fatal(err)
	}
	lose := func(match string, f func()) {
		t.Helper()
		before := faults.Swallowed()
		faults.SwallowReply(match)
		f()
		if faults.Swallowed() != before+1 {
			t.Fatalf("no reply to %q was lost", match)
		}
	}
	buy := core.Attempt{Actor: "ann", Resource: "tv", ID: "op"}
	var d core.Decision
	lose("evalsha", func() { d = guardtest.Check(t, g, buy) })
	if !d.Allowed || d.Replayed {
		t.Fatalf("%+v", d)
	}
	lose("evalsha", func() { guardtest.Settle(t, g, d, core.Commit) })
	wantStatus(t, g, "tv", 4, 0, 1)

	buy = core.Attempt{Actor: "bob", Resource: "tv", ID: "op 2"}
	lose("\r\nwait\r\n", func() { guardtest.WantReason(t, guardtest.Check(t, g, buy), core.ReasonUnconfirmed) })
	d = guardtest.Check(t, g, buy)
	guardtest.WantReason(t, d, core.ReasonOK)
	lose("\r\nwait\r\n", func() {
		if err := g.Settle(t.Context(), d, core.Commit); !errors.Is(err, core.ErrUnconfirmed) {
			t.Errorf("Settle: %v", err)
		}
	})
	guardtest.Settle(t, g, d, core.Commit)
	wantStatus(t, g, "tv", 3, 0, 2)

	// go-redis tries as often as its options say, and so does this.
	faults.SwallowReplies("evalsha", 4)
	if d, err := g.Check(t.Context(), core.Attempt{Actor: "cid", Resource: "tv"}); err == nil || d.Allowed {
		t.Errorf("a fifth try: %+v, %v", d, err)
	}
	redistest.Eventually(t, time.Minute, func() bool { return g.Engine().Pending() == 0 },
		"the hold goes back")
	wantStatus(t, g, "tv", 3, 0, 2)
}

// TestAckedScriptFlush: the server forgets its scripts before every call.
func TestAckedScriptFlush(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	rdb, admin := p.primary.Client(t), p.primary.Client(t)
	rdb.AddHook(hooks(func(cmd redis.Cmder) {
		if cmd.Name() == "evalsha" {
			admin.ScriptFlush(t.Context())
		}
	}))
	g := ackedSale(t, rdb)
	openSale(t, g, "tv", Sale{Stock: 5})
	d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv"})
	guardtest.WantReason(t, d, core.ReasonOK)
	guardtest.Settle(t, g, d, core.Commit)
	wantStatus(t, g, "tv", 4, 0, 1)
}

// TestAckedEndsWithTheDeadline: when WAIT does not answer in time, the script's reply is known nevertheless.
func TestAckedEndsWithTheDeadline(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	openSale(t, p.patient, "tv", Sale{Stock: 100})
	for name, obeys := range map[string]bool{"obeyed": true, "enforced": false} {
		t.Run(name, func(t *testing.T) {
			rdb := redis.NewClient(&redis.Options{Addr: p.primary.Addr(), ContextTimeoutEnabled: obeys})
			t.Cleanup(func() { _ = rdb.Close() })
			e := core.New(rdb, core.WithDeadline(time.Second), core.WithObserver(guardtest.Ignore{}))
			g := New(e, "s", Options{Durability: Acked, AckWithin: 999 * time.Millisecond})
			var waits atomic.Bool
			rdb.AddHook(hooks(func(cmd redis.Cmder) {
				if cmd.Name() == "wait" {
					p.primary.Pause()
					waits.Store(true)
				}
			}))
			var a core.Attempt
			var d core.Decision
			var err error
			try := 0
			// Where the machine stands still, the deadline may end before the script has answered.
			redistest.Eventually(t, time.Minute, func() bool {
				try++
				id := fmt.Sprint(name, try)
				a = core.Attempt{Actor: id, Resource: "tv", ID: id}
				d, err = g.Check(t.Context(), a)
				return waits.Load()
			}, "a call waits for replicas")
			p.primary.Resume()
			if err != nil || d.Reason != core.ReasonUnconfirmed {
				t.Errorf("%+v, %v", d, err)
			}
			guardtest.WantReason(t, guardtest.Check(t, p.patient, a), core.ReasonOK)
		})
	}
}

// wrapped is an application's client around a *redis.Client.
type wrapped struct{ *redis.Client }

func TestAckedOnOtherClients(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	ring := redis.NewRing(&redis.RingOptions{
		Addrs: map[string]string{"one": p.primary.Addr()}, ReadTimeout: time.Minute, HeartbeatFrequency: time.Hour,
	})
	t.Cleanup(func() { _ = ring.Close() })
	for name, rdb := range map[string]script.Client{"ring": ring, "wrapped": wrapped{p.primary.Client(t)}} {
		g := ackedSale(t, rdb)
		openSale(t, g, name, Sale{Stock: 5})
		d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: name})
		guardtest.WantReason(t, d, core.ReasonOK)
		guardtest.Settle(t, g, d, core.Commit)
		wantStatus(t, g, name, 4, 0, 1)
	}
}

// TestAckedErrors: a reply that is not an answer stays an error, and admits nobody.
func TestAckedErrors(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	openSale(t, p.patient, "tv", Sale{Stock: 5})
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = nobody.Close()
	for text, rdb := range map[string]script.Client{
		"READONLY":               p.replica.Client(t),
		"LOADING":                guardtest.RefusingServer(t, "-LOADING Redis is loading the dataset in memory\r\n"),
		"unexpected reply":       guardtest.RefusingServer(t, "*1\r\n$2\r\nno\r\n"),
		"refused the connection": redis.NewClient(&redis.Options{Addr: nobody.Addr().String(), DialerRetries: 1}),
		"cluster has no node":    redis.NewClusterClient(&redis.ClusterOptions{}),
	} {
		g := ackedSale(t, rdb)
		d, err := g.Check(t.Context(), core.Attempt{Actor: "ann", Resource: "tv"})
		if err == nil || d.Allowed || d.Reason != "" || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %+v, %v", text, d, err)
		}
	}
	if _, err := ackedSale(t, p.primary.Client(t)).Check(canceled(t),
		core.Attempt{Actor: "ann", Resource: "tv"}); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who has given up: %v", err)
	}
	wantStatus(t, p.patient, "tv", 5, 0, 0)
}

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// TestAckedTouchWritesOnlyWhatIsThere: without a sale there is nothing to confirm.
func TestAckedTouchWritesOnlyWhatIsThere(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		e := guardtest.NewEngine(b)
		key := e.Key("own", "a")
		touch := func(want int64) {
			t.Helper()
			if n, err := e.Run(t.Context(), script.New("touch", lua.Source("core/touch"), script.Idempotent),
				[]string{key}); n != want || err != nil {
				t.Errorf("%v, %v, want %d", n, err, want)
			}
		}
		touch(0)
		b.Client.Set(t.Context(), key, "v", 0)
		touch(0)
		b.Client.PExpire(t.Context(), key, time.Minute)
		before := b.Client.PExpireTime(t.Context(), key).Val()
		touch(1)
		if after := b.Client.PExpireTime(t.Context(), key).Val(); (after - before).Abs() > 10*time.Millisecond {
			t.Errorf("expires at %v, and did at %v", after, before)
		}
	})
}

// TestAckedFollowsItsSlot: a cluster node's client does not follow a slot that has moved, so the call must.
func TestAckedFollowsItsSlot(t *testing.T) {
	redistest.LeftToCI(t)
	t.Parallel()
	timed.Test(t, time.Second, followsItsSlot) // after 2 s of silence a master is replaced
}

func followsItsSlot(t *timed.T) {
	c := redistest.StartCluster(t)
	g := ackedSale(t, c.Client(t))
	openSale(t, g, "tv", Sale{Stock: 5})
	d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv"})
	guardtest.WantReason(t, d, core.ReasonOK)
	slot := redistest.Slot(g.saleKeys("tv")[0])
	from, to := c.MasterOfSlot(slot), c.MasterOfSlot((slot+5461)%16384)

	m := c.BeginMigration(t, slot, from, to)
	m.MoveKeys(2)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if d, err := g.Check(ctx, core.Attempt{Actor: "bob", Resource: "tv"}); err == nil {
		t.Errorf("half of the sale is elsewhere: %+v", d)
	}
	m.Finish()
	guardtest.Settle(t, g, d, core.Commit)
	guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "tv"}), core.ReasonOK)
	wantStatus(t, g, "tv", 3, 1, 1)
}
