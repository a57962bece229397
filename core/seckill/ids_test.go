package seckill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/lua"
)

// TestACancelledIDStaysItsBuyers: Ann's order was cancelled, Mallory reserved under the same ID, and Ann's
// late payment confirmed Mallory's unit.
//
// Promise: An ID is one buyer's, also after a cancel or expiry, until 16 other reservations of the buyer have
// failed (PerBuyer if more, 500 at most). Others cannot confirm or cancel it.
func TestACancelledIDStaysItsBuyers(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "s", Options{})
		openSale(t, g, "tv", Sale{Stock: 5})
		ann := core.Attempt{Actor: "ann", Resource: "tv", ID: "order"}
		mallory := core.Attempt{Actor: "mallory", Resource: "tv", ID: "order"}
		for _, cancel := range []func(d core.Decision){
			func(d core.Decision) { guardtest.Settle(t, g, d, core.Rollback) },
			func(core.Decision) {
				if d, err := g.Cancel(t.Context(), ann); err != nil || !d.Allowed || d.Replayed {
					t.Errorf("%+v, %v", d, err)
				}
			},
		} {
			cancel(guardtest.Check(t, g, ann)) // the second time: after a failed request she buys under the same ID
			guardtest.WantReason(t, guardtest.Check(t, g, mallory), core.ReasonConflict)
			d, err := g.Confirm(t.Context(), ann)
			if err != nil {
				t.Fatal(err)
			}
			guardtest.WantReason(t, d, core.ReasonGone)
			wantStatus(t, g, "tv", 5, 0, 0)
		}
		guardtest.WantReason(t, guardtest.Check(t, g, ann), core.ReasonOK)
		wantNotHers(t, g, mallory)
		wantStatus(t, g, "tv", 4, 1, 0)
		if d, err := g.Confirm(t.Context(), ann); err != nil || !d.Allowed {
			t.Errorf("%+v, %v", d, err)
		}
		wantNotHers(t, g, mallory) // nor when it is sold
		wantStatus(t, g, "tv", 4, 0, 1)
	})
}

// TestACancelThatArrivesTwiceCancelsOnce: its reply was lost, and its buyer reserved anew before the client library
// sent it again. The second one gave the new reservation back.
func TestACancelThatArrivesTwiceCancelsOnce(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "s", Options{})
		openSale(t, g, "tv", Sale{Stock: 5})
		ann := core.Attempt{Actor: "ann", Resource: "tv", ID: "order"}
		guardtest.WantReason(t, guardtest.Check(t, g, ann), core.ReasonOK)
		args := append([]any{"order"}, g.cancelArgs("all")(ann.WithCall())...)
		for range 2 {
			if _, err := g.stockOf("tv").run(t.Context(), seckillCancelScript, args...); err != nil {
				t.Fatal(err)
			}
			guardtest.WantReason(t, guardtest.Check(t, g, ann), core.ReasonOK)
			wantStatus(t, g, "tv", 4, 1, 0)
		}
		if d, err := g.Cancel(t.Context(), ann); err != nil || !d.Allowed || d.Replayed { // a new one
			t.Errorf("%+v, %v", d, err)
		}
		wantStatus(t, g, "tv", 5, 0, 0)
		if d, err := g.Confirm(t.Context(), ann); err != nil || d.Reason != core.ReasonGone {
			t.Errorf("%+v, %v", d, err)
		}
		wantConsistent(t, g, "tv")
	})
}

// wantNotHers checks that a buyer who ends another's reservation hears what is said of IDs that nobody has
// used.
func wantNotHers(t *testing.T, g *Guard, a core.Attempt) {
	t.Helper()
	nobodys := a
	nobodys.ID = "nobody's"
	for what, end := range map[string]func(context.Context, core.Attempt) (core.Decision, error){
		"confirm": g.Confirm, "cancel": g.Cancel,
	} {
		got, err := end(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		want, err := end(t.Context(), nobodys)
		if want.Attempt.ID = a.ID; err != nil || got != want {
			t.Errorf("%s: %+v, want %+v, %v", what, got, want, err)
		}
	}
}

// late is a client whose next command of a script does not arrive before the test lets it.
type late struct {
	script.Client
	script *script.Script
	hold   atomic.Bool
	held   []any
}

func (l *late) Process(ctx context.Context, cmd redis.Cmder) error {
	if args := cmd.Args(); len(args) > 1 && args[1] == l.script.SHA() && l.hold.CompareAndSwap(true, false) {
		l.held = args
		cmd.SetErr(errors.New("i/o timeout"))
		return cmd.Err()
	}
	return l.Client.Process(ctx, cmd)
}

// newLate returns a guard whose next reservation may be late.
func newLate(t *testing.T, b redistest.Backend, clock *guardtest.Clock) (*Guard, *late) {
	t.Helper()
	rdb := &late{Client: b.Client, script: seckillReserveScript}
	e := guardtest.NewEngineOver(b, rdb, guardtest.WithClock(clock))
	if err := e.Preload(t.Context()); err != nil {
		t.Fatal(err)
	}
	return New(e, "s", Options{}), rdb
}

// TestReservationsThatComeAfterTheirCancelHoldNothing: the network delivered one after its caller had given
// up and cancelled, and its units stayed held for the whole hold.
//
// Promise: A reservation that arrives after its cancel, or again after its hold, holds nothing. A cancel that
// arrives twice cancels no later reservation.
func TestReservationsThatComeAfterTheirCancelHoldNothing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g, rdb := newLate(t, b, clock)
		ann := core.Attempt{Actor: "ann", Resource: "tv", ID: "order"}
		for name, c := range map[string]struct {
			before func() // the late call
			after  func() // its cancel
			left   int64
			held   int64
			sold   int64
		}{
			"alone":                 {func() {}, func() {}, 5, 0, 0},
			"and asked again since": {func() {}, func() { guardtest.Check(t, g, ann) }, 4, 1, 0},
			"beside another that fails": {func() {}, func() {
				guardtest.Settle(t, g, guardtest.Check(t, g, ann), core.Rollback)
			}, 5, 0, 0},
			"beside another that goes on": {func() { guardtest.Check(t, g, ann) }, func() {}, 4, 1, 0},
			"beside another that expires": {func() { guardtest.Check(t, g, ann) }, func() {
				clock.Advance(time.Hour)
				if n, err := g.Sweep(t.Context(), ann.Resource); n != 1 || err != nil {
					t.Errorf("Sweep: %d, %v", n, err)
				}
			}, 5, 0, 0},
			"beside another that buys": {func() { guardtest.Settle(t, g, guardtest.Check(t, g, ann), core.Commit) },
				func() {}, 4, 0, 1},
		} {
			ann.Resource = name
			openSale(t, g, name, Sale{Stock: 5, Hold: time.Minute})
			c.before()
			rdb.hold.Store(true)
			if d, err := g.Check(t.Context(), ann); err == nil {
				t.Errorf("%s: %+v", name, d)
			}
			cancelled := func() bool { return g.Engine().Pending() == 0 }
			redistest.Eventually(t, time.Minute, cancelled, "the call has cancelled")
			c.after()
			whole := slices.Clone(rdb.held) // other tests may have flushed the scripts
			whole[0], whole[1] = "eval", lua.Source("seckill/reserve")
			reply, err := b.Client.Do(t.Context(), whole...).Slice()
			want := "gone"
			if c.sold > 0 {
				want = "ok" // and it changes nothing
			}
			if err != nil || reply[0] != want {
				t.Errorf("%s: the late call heard %v (%v), want %s", name, reply, err, want)
			}
			wantStatus(t, g, name, c.left, c.held, c.sold)
		}
	})
}

// TestAReservationThatArrivesAgainAfterItsHoldHoldsNothing: the network delivered a call a second time when its
// hold was over, and the units were held for nobody; also when its buyer has reserved since.
func TestAReservationThatArrivesAgainAfterItsHoldHoldsNothing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g, rdb := newLate(t, b, clock)
		openSale(t, g, "tv", Sale{Stock: 1, Hold: time.Minute})
		ann := core.Attempt{Actor: "ann", Resource: "tv", ID: "order"}
		rdb.hold.Store(true)
		if d, err := g.Check(t.Context(), ann); err == nil {
			t.Fatalf("%+v", d)
		}
		arrives := func(want string) {
			t.Helper()
			whole := append([]any{"eval", lua.Source("seckill/reserve")}, rdb.held[2:]...)
			whole[len(whole)-5] = clock.Now().UnixMilli() // in front of the attempt's four
			if reply, err := b.Client.Do(t.Context(), whole...).Slice(); err != nil || reply[0] != want {
				t.Errorf("the call heard %v (%v), want %s", reply, err, want)
			}
		}
		cancelled := func() bool { return g.Engine().Pending() == 0 }
		redistest.Eventually(t, time.Minute, cancelled, "the call has cancelled")
		rdb.held[len(rdb.held)-1] = "another" // of which nobody has heard
		arrives("ok")
		clock.Advance(time.Minute)
		arrives("gone")
		wantStatus(t, g, "tv", 1, 0, 0)
		for range 3 {
			guardtest.WantReason(t, guardtest.Check(t, g, ann), core.ReasonOK)
			clock.Advance(time.Minute)
			arrives("gone")
		}
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "tv"}), core.ReasonOK)
	})
}

// TestFailedAttemptsAreBoundedPerBuyer: 20,000 failed attempts of 8 buyers left 3.5 MB.
//
// Promise: Only a buyer's last 16 failed reservations (PerBuyer if more, 500 at most) are kept, with their
// events. 20,000 failed attempts of 8 buyers leave 62 kB.
func TestFailedAttemptsAreBoundedPerBuyer(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		const buyers = 8
		attempts := buyers * 60
		if redistest.Soak() && b.Mini == nil {
			attempts = 20_000
		}
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{})
		openSale(t, g, "tv", Sale{Stock: 100, PerBuyer: 2, Hold: time.Minute})
		for i := range buyers {
			guardtest.Settle(t, g,
				guardtest.Check(t, g, core.Attempt{Actor: fmt.Sprint("buyer ", i), Resource: "tv"}), core.Commit)
		}
		for i := range attempts {
			d := guardtest.Check(t, g, core.Attempt{Actor: fmt.Sprint("buyer ", i%buyers), Resource: "tv"})
			guardtest.WantReason(t, d, core.ReasonOK)
			if i/buyers%4 == 3 { // walks away
				clock.Advance(time.Minute)
				if n, err := g.Sweep(t.Context(), "tv"); n != 1 || err != nil {
					t.Fatalf("Sweep: %d, %v", n, err)
				}
				continue
			}
			guardtest.Settle(t, g, d, core.Rollback)
		}
		wantStatus(t, g, "tv", 100-buyers, 0, buyers)
		keys := g.saleKeys("tv")
		// A sale and 16 failed reservations for each buyer, their places, and how many they were.
		if n := b.Client.HLen(t.Context(), keys[3]).Val(); n > 1+buyers*34 {
			t.Errorf("%d records after %d failed attempts", n, attempts)
		}
		if n := b.Client.XLen(t.Context(), keys[4]).Val(); n > 1+buyers*(2+32) {
			t.Errorf("%d events after %d failed attempts", n, attempts)
		}
		if b.Mini == nil {
			var bytes int64
			for _, key := range keys {
				bytes += b.Client.MemoryUsage(t.Context(), key, 0).Val()
			}
			t.Logf("%d bytes after %d failed attempts", bytes, attempts)
			if bytes > 100_000 {
				t.Errorf("%d bytes after %d failed attempts", bytes, attempts)
			}
		}
		// The last of them are known still.
		field := "failed|" + script.Encode("buyer 0")
		number, err := b.Client.HGet(t.Context(), keys[3], field).Int()
		if err != nil {
			t.Fatal(err)
		}
		oldest, err := b.Client.HGet(t.Context(), keys[3], fmt.Sprint(field, "|", (number+1)%16)).Result()
		if err != nil {
			t.Fatal(err)
		}
		id, _, _ := strings.Cut(oldest, " ")
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "mallory", Resource: "tv", ID: id}),
			core.ReasonConflict)
	})
}
