package quota

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// daily returns options for the given number of items per day in UTC.
func daily(items int) Options { return Options{Items: items, Period: period.Daily(time.UTC)} }

// newQuota makes a quota of the given number of items on a day that does not end during a test.
func newQuota(t testing.TB, b redistest.Backend, items int) *Guard {
	t.Helper()
	clock := clockAt(t, "2030-05-01T12:00:00Z")
	g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "q", daily(items))
	g.clock = clock.Now
	return g
}

// clockAt returns a clock for withClock that shows a time of RFC 3339.
func clockAt(t testing.TB, at string) *guardtest.Clock {
	t.Helper()
	now, err := time.Parse(time.RFC3339, at)
	if err != nil {
		t.Fatal(err)
	}
	return guardtest.NewClockAt(now)
}

// wantUsed fails the test unless ann has used these items and has this many left.
func wantUsed(t *testing.T, g *Guard, remaining int64, want ...string) {
	t.Helper()
	items, left, err := g.Used(t.Context(), core.Attempt{Actor: "ann"})
	if err != nil || left != remaining || !slices.Equal(items, want) {
		t.Fatalf("used %q and %d left, %v; want %q and %d left", items, left, err, want, remaining)
	}
}

// Promise: A quota grants at most N different items per period. A known item is free.
func TestQuotaCountsDifferentItems(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := clockAt(t, "2030-05-01T18:00:00Z")
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "q", daily(2))
		for i, step := range []struct {
			item      string
			reason    core.Reason
			remaining int64
		}{
			{"a7", core.ReasonOK, 1},
			{"a7", core.ReasonAgain, 1},
			{"a8", core.ReasonOK, 0},
			{"a9", core.ReasonQuota, 0},
			{"a7", core.ReasonAgain, 0},
			{"a8", core.ReasonAgain, 0},
		} {
			d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: step.item})
			guardtest.WantReason(t, d, step.reason)
			retry := time.Duration(0)
			if step.reason == core.ReasonQuota {
				retry = 6 * time.Hour
			}
			if d.Limit != 2 || d.Remaining != step.remaining || d.RetryAfter != retry || d.ResetAfter != 6*time.Hour ||
				d.Window != 24*time.Hour || d.Replayed {
				t.Errorf("step %d: %+v, want %+v", i, d, step)
			}
		}
		wantUsed(t, g, 0, "a7", "a8")

		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "bob", Item: "a9"}), core.ReasonOK)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "videos", Item: "a9"}),
			core.ReasonOK)

		clock.Advance(6*time.Hour - time.Millisecond)
		if d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: "a9"}); d.RetryAfter != time.Millisecond {
			t.Errorf("%+v: want a retry at the end of the day", d)
		}
		clock.Advance(time.Millisecond)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: "a9"}), core.ReasonOK)
		wantUsed(t, g, 1, "a9")
	})
}

// Promise (Every guard): A refused attempt writes nothing, with two exceptions. After the clock was set back,
// it shortens leases that would last too long. A log of other limits notes it, once in a quarter of its
// Window.
func TestQuotaRefusalsWriteNothing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newQuota(t, b, 1)
		d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: "a7", ID: "op"})
		guardtest.WantReason(t, d, core.ReasonOK)
		conflict := core.Attempt{Actor: "ann", Item: "a8", ID: "op"}.WithCall()
		full := core.Attempt{Actor: "ann", Item: "a8", ID: "op 2"}.WithCall()
		for range 8 { // after eight calls a known item writes nothing either
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: "a7"}), core.ReasonAgain)
		}
		keys := g.quotaKeys(full, spanOf(d), full.Call())
		contents := func() string {
			ctx, rdb := t.Context(), b.Client
			expires := []time.Duration{0, 0}
			if b.Mini == nil {
				expires = []time.Duration{rdb.PExpireTime(ctx, keys[0]).Val(), rdb.PExpireTime(ctx, keys[1]).Val()}
			}
			return fmt.Sprint(rdb.HGetAll(ctx, keys[0]).Val(), rdb.SMembers(ctx, keys[1]).Val(),
				rdb.Exists(ctx, keys[2]).Val(), expires)
		}
		before := contents()
		for range 3 {
			guardtest.WantReason(t, guardtest.Check(t, g, conflict), core.ReasonConflict)
			guardtest.WantReason(t, guardtest.Check(t, g, full), core.ReasonQuota)
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: "a7", ID: "op 3"}),
				core.ReasonAgain)
		}
		if after := contents(); after != before || !strings.Contains(before, "map[a7:op=") {
			t.Errorf("the keys held %s and hold %s", before, after)
		}
	})
}

// Promise (Every guard): The same ID with another actor, item or cost is `conflict`.
func TestQuotaReplayAndConflict(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := clockAt(t, "2030-05-01T18:00:00Z")
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "q", daily(2))
		first, second := core.Attempt{Actor: "ann", Item: "a7", ID: "op 1"},
			core.Attempt{Actor: "ann", Item: "a7", ID: "op 2"}
		one := guardtest.Check(t, g, first)
		guardtest.WantReason(t, one, core.ReasonOK)
		guardtest.WantReason(t, guardtest.Check(t, g, second), core.ReasonAgain)
		guardtest.Settle(t, g, one, core.Rollback) // each operation still replays its own answer
		for range 2 {
			d := guardtest.Check(t, g, second)
			if guardtest.WantReason(t, d, core.ReasonAgain); !d.Replayed {
				t.Errorf("%+v is not replayed", d)
			}
			guardtest.Settle(t, g, d, core.Rollback)
		}
		wantUsed(t, g, 1, "a7")

		third := core.Attempt{Actor: "ann", Item: "a8", ID: "op 3"}
		guardtest.WantReason(t, guardtest.Check(t, g, third), core.ReasonOK)
		for range 2 {
			d := guardtest.Check(t, g, third) // even while the quota is used up
			if guardtest.WantReason(t, d, core.ReasonOK); !d.Replayed {
				t.Errorf("%+v is not replayed", d)
			}
		}
		for _, item := range []string{"a7", "a9"} {
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: item, ID: "op 3"}),
				core.ReasonConflict)
		}
		// bob's quota is independent of ann's
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "bob", Item: "a9", ID: "op 3"}),
			core.ReasonOK)
		wantUsed(t, g, 0, "a7", "a8")

		clock.Advance(6 * time.Hour)
		// and so is the next day
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: "a9", ID: "op 3"}),
			core.ReasonOK)
	})
}

// TestQuotaAskedAgain: a decision's attempt, whose ID the guard made, can be repeated like one with an ID
// from outside.
func TestQuotaAskedAgain(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newQuota(t, b, 1)
		a := guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: "a7"}).Attempt
		if d := guardtest.Check(t, g, a); d.Reason != core.ReasonOK || !d.Replayed {
			t.Errorf("%+v: want the first answer again", d)
		}
	})
}

// TestQuotaSharedItems: an item that several attempts share is removed when all of them have failed.
//
// Promise: An item goes back when all attempts that were granted it have failed, unless more than eight
// shared it.
func TestQuotaSharedItems(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newQuota(t, b, 3)
		a := core.Attempt{Actor: "ann", Item: "a7"}
		first, second := guardtest.Check(t, g, a), guardtest.Check(t, g, a)
		guardtest.Settle(t, g, first, core.Rollback)
		guardtest.Settle(t, g, second, core.Commit)
		guardtest.Settle(t, g, first, core.Rollback) // a second rollback changes nothing
		wantUsed(t, g, 2, "a7")

		a.Item = "a8"
		first, second = guardtest.Check(t, g, a), guardtest.Check(t, g, a)
		guardtest.Settle(t, g, second, core.Rollback)
		guardtest.Settle(t, g, second, core.Rollback)
		wantUsed(t, g, 1, "a7", "a8")
		guardtest.Settle(t, g, first, core.Rollback)
		wantUsed(t, g, 2, "a7")
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)

		a.Item, a.ID = "a9", "op" // of the same operation
		first, second = guardtest.Check(t, g, a), guardtest.Check(t, g, a)
		guardtest.Settle(t, g, first, core.Rollback)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: "a7", ID: "op"}),
			core.ReasonConflict)
		guardtest.Settle(t, g, second, core.Rollback)
		wantUsed(t, g, 1, "a7", "a8")
		// the operation ID is free again
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: "a7", ID: "op"}),
			core.ReasonAgain)
		guardtest.Settle(t, g, guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: "new", ID: "op 2"}),
			core.Commit)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: "a10"}), core.ReasonQuota)
	})
}

// TestQuotaSharedByMany: many repetitions do not make the record grow, and the item stays.
func TestQuotaSharedByMany(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newQuota(t, b, 2)
		var shared []core.Decision
		for i := range 30 {
			shared = append(shared, guardtest.Check(t, g,
				core.Attempt{Actor: "ann", Item: "a7", ID: fmt.Sprint("op", i)}))
		}
		for _, d := range shared[1:] {
			guardtest.WantReason(t, d, core.ReasonAgain)
		}
		keys := g.quotaKeys(shared[0].Attempt, spanOf(shared[0]), "")
		if n := len(b.Client.HGet(t.Context(), keys[0], "a7").Val()); n > 8*len("op10|abcdefghij ")+1 {
			t.Errorf("the record of the item has %d bytes", n)
		}
		if n := b.Client.SCard(t.Context(), keys[1]).Val(); n != 8 {
			t.Errorf("%d operations are remembered, want 8", n)
		}
		for _, d := range shared {
			guardtest.Settle(t, g, d, core.Rollback)
		}
		wantUsed(t, g, 1, "a7")
		if d := guardtest.Check(t, g,
			core.Attempt{Actor: "ann", Item: "a7", ID: "op0"}); d.Reason != core.ReasonOK || !d.Replayed {
			t.Errorf("%+v: want the first answer again", d)
		}
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: "a8", ID: "op1"}),
			core.ReasonConflict)

		// Eight calls are still remembered one by one.
		shared = nil
		for range 8 {
			shared = append(shared, guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: "a8"}))
		}
		for _, d := range shared {
			wantUsed(t, g, 0, "a7", "a8")
			guardtest.Settle(t, g, d, core.Rollback)
		}
		wantUsed(t, g, 1, "a7")
	})
}

// TestQuotaUndoThatOvertakes: an attempt that arrives after its undo does not count.
func TestQuotaUndoThatOvertakes(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newQuota(t, b, 2)
		a, err := core.Attempt{Actor: "ann", Item: "a7", ID: "op"}.PrepareItem()
		if err != nil {
			t.Fatal(err)
		}
		s, err := g.options.Period.At(g.clock().UnixMilli())
		if err != nil {
			t.Fatal(err)
		}
		if err := g.undo(t.Context(), a, granted{s, a.Call(), true}); err != nil {
			t.Fatal(err)
		}
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonGone)
		wantUsed(t, g, 2)
		void := g.quotaKeys(a, s, a.Call())[2]
		if ttl := b.Client.PTTL(t.Context(), void).Val(); ttl <= 0 || ttl > kit.TombstoneTTL {
			t.Errorf("the tombstone lasts %v", ttl)
		}
		a = a.WithoutCall()
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK) // a new call
		wantUsed(t, g, 1, "a7")
	})
}

// TestQuotaGivenUp: an attempt whose reply does not arrive in time is undone.
func TestQuotaGivenUp(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		witness := newQuota(t, b, 2)
		b.Client = b.NewClientWith(t, faults)
		g := newQuota(t, b, 2)
		if err := g.Engine().Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		guardtest.Check(t, g, core.Attempt{Actor: "bob", Item: "a7"}) // opens a connection
		faults.Hang(true)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := g.Check(ctx, core.Attempt{Actor: "ann", Item: "a7"})
			done <- err
		}()
		counted := func() int {
			items, _, err := witness.Used(t.Context(), core.Attempt{Actor: "ann"})
			if err != nil {
				t.Fatal(err)
			}
			return len(items)
		}
		redistest.Eventually(t, time.Minute, func() bool { return counted() == 1 }, "the attempt to be counted")
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Check: %v", err)
		}
		faults.Hang(false)
		redistest.Eventually(t, time.Minute, func() bool { return counted() == 0 },
			"the attempt to be taken back")
	})
}

// TestQuotaLostReply: go-redis resends the call, and it counts once.
func TestQuotaLostReply(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		g := newQuota(t, b, 2)
		if err := g.Engine().Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, id := range []string{"", "op"} {
			faults.SwallowReply("evalsha")
			d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: fmt.Sprint("a", i), ID: id})
			if guardtest.WantReason(t, d, core.ReasonOK); d.Replayed || d.Remaining != int64(1-i) {
				t.Errorf("%+v: want a first answer", d)
			}
			faults.SwallowReply("evalsha")
			again := guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: fmt.Sprint("a", i)})
			if guardtest.WantReason(t, again, core.ReasonAgain); again.Replayed {
				t.Errorf("%+v: want a first answer", again)
			}
			faults.SwallowReply("evalsha")
			guardtest.Settle(t, g, d, core.Rollback)
			faults.SwallowReply("evalsha")
			guardtest.Settle(t, g, d, core.Rollback)
		}
		wantUsed(t, g, 0, "a0", "a1")
		if n := faults.Swallowed(); n != 8 {
			t.Errorf("%d replies were swallowed", n)
		}
	})
}

func TestQuotaHostileText(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newQuota(t, b, maxQuotaItems)
		for i, text := range guardtest.Hostile {
			for _, a := range []core.Attempt{
				{Actor: text, Item: "x"},
				{Actor: "ann", Resource: text, Item: "x"},
				{Actor: "bob", Item: text},
				{Actor: "cid", Item: fmt.Sprint(i), ID: text},
			} {
				d := guardtest.Check(t, g, a)
				if d.Reason != core.ReasonOK || d.Replayed {
					t.Errorf("%.40q collides with another: %+v", text, d)
				}
				guardtest.Settle(t, g, d, core.Rollback)
				if d := guardtest.Check(t, g, a); d.Reason != core.ReasonOK || d.Replayed {
					t.Errorf("%.40q was not undone: %+v", text, d)
				}
			}
		}
		items, _, err := g.Used(t.Context(), core.Attempt{Actor: "bob"})
		if err != nil || len(items) != len(guardtest.Hostile) {
			t.Fatalf("%d items (%v), want %d", len(items), err, len(guardtest.Hostile))
		}
		for _, text := range guardtest.Hostile {
			if kept := script.EncodeUpTo(script.MaxRecord, text); !strings.HasPrefix(kept, "#") &&
				!slices.Contains(items, text) {
				t.Errorf("%q is not among the items", text)
			}
		}
	})
}

func TestQuotaInvalid(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newQuota(t, b, 2)
		for _, a := range []core.Attempt{
			{Item: "a7"}, {Actor: "ann"}, {Actor: "ann", Item: "a7", Cost: 2}, {Actor: "ann", Item: "a7", Cost: -1},
		} {
			if d, err := g.Check(t.Context(), a); !guardtest.IsInvalid(err) || d.Allowed {
				t.Errorf("%+v: %+v, %v", a, d, err)
			}
		}
		if _, _, err := g.Used(t.Context(), core.Attempt{}); !guardtest.IsInvalid(err) {
			t.Errorf("Used of nobody: %v", err)
		}
		if err := g.Reset(t.Context(), core.Attempt{}); !guardtest.IsInvalid(err) {
			t.Errorf("Reset of nobody: %v", err)
		}
		mine := guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: "a7", Cost: 1})
		others := mine
		others.Guard = "other"
		for _, d := range []core.Decision{others,
			{Guard: "q", Attempt: mine.Attempt, Allowed: true, Reason: core.ReasonOK}} {
			if err := g.Settle(t.Context(), d, core.Rollback); !guardtest.IsInvalid(err) {
				t.Errorf("Settle(%+v): %v", d, err)
			}
		}
		guardtest.Settle(t, g, core.Decision{Guard: "q"}, core.Rollback) // refused: nothing to do
		wantUsed(t, g, 1, "a7")
	})
}

func TestQuotaRace(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		for _, clients := range []int{2, 16} {
			const calls, items = 400, 50
			guards := make([]*Guard, clients)
			for i := range guards {
				b := b
				b.Client = b.NewClient(t)
				guards[i] = newQuota(t, b, items)
			}
			play := func(actor string, item func(i int) string) map[core.Reason]int {
				var mu sync.Mutex
				reasons := map[core.Reason]int{}
				var all sync.WaitGroup
				for i := range calls {
					all.Go(func() {
						d, err := guards[i%clients].Check(t.Context(),
							core.Attempt{Actor: actor, Resource: fmt.Sprint(clients), Item: item(i)})
						if err != nil {
							t.Error(err)
						}
						mu.Lock()
						defer mu.Unlock()
						reasons[d.Reason]++
					})
				}
				all.Wait()
				return reasons
			}
			got := play("different", func(i int) string { return fmt.Sprint(i) })
			if want := map[core.Reason]int{core.ReasonOK: items, core.ReasonQuota: calls - items}; !maps.Equal(got,
				want) {
				t.Errorf("%d clients, different items: %v, want %v", clients, got, want)
			}
			got = play("same", func(int) string { return "a7" })
			if want := map[core.Reason]int{core.ReasonOK: 1, core.ReasonAgain: calls - 1}; !maps.Equal(got, want) {
				t.Errorf("%d clients, the same item: %v, want %v", clients, got, want)
			}
			if _, left, err := guards[0].Used(t.Context(),
				core.Attempt{Actor: "same", Resource: fmt.Sprint(clients)}); left != items-1 || err != nil {
				t.Errorf("%d left, %v", left, err)
			}
		}
	})
}

// TestQuotaRaceOfUndoes: whatever the order of attempts and failures, an item counts if one of its allowed
// attempts has not failed.
func TestQuotaRaceOfUndoes(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		const items, tries = 40, 6
		g := newQuota(t, b, items)
		var succeeded [items]atomic.Bool
		var all sync.WaitGroup
		for n := range items * tries {
			item, fails := n%items, rng.IntN(3) > 0
			all.Go(func() {
				d, err := g.Check(t.Context(), core.Attempt{Actor: "ann", Item: fmt.Sprint(item)})
				if err == nil {
					err = g.Settle(t.Context(), d, guardtest.Ending(!fails))
				}
				if err != nil || !d.Allowed {
					t.Errorf("%+v, %v", d, err)
				}
				if !fails {
					succeeded[item].Store(true)
				}
			})
		}
		all.Wait()
		var want []string
		for item := range items {
			if succeeded[item].Load() {
				want = append(want, fmt.Sprint(item))
			}
		}
		slices.Sort(want)
		wantUsed(t, g, int64(items-len(want)), want...)
	})
}

// TestQuotaMidnightSkew: processes whose clocks are minutes off check around midnight. The server's clock
// decides, so nobody gets more than one day's items on one day of the server.
//
// Promise (Every guard): The clocks of two processes give nobody two periods.
func TestQuotaMidnightSkew(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		server := clockAt(t, "2030-05-01T23:50:00Z")
		const items = 10
		var guards []*Guard
		for _, skew := range []time.Duration{0, 7 * time.Minute, -7 * time.Minute, 49 * time.Hour} {
			g := New(guardtest.NewEngine(b, guardtest.WithClock(server)), "q", daily(items))
			g.clock = func() time.Time { return server.Now().Add(skew) }
			guards = append(guards, g)
		}
		counted := map[int]int{} // items by the server's day
		for i := range 80 {
			day := server.Now().Day()
			for j, g := range guards {
				d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: fmt.Sprint(i, j)})
				if d.Allowed {
					counted[day]++
					continue
				}
				midnight := time.Date(2030, 5, day+1, 0, 0, 0, 0, time.UTC)
				if guardtest.WantReason(t, d, core.ReasonQuota); d.RetryAfter != midnight.Sub(server.Now()) {
					t.Fatalf("%+v at %v: want a retry at midnight", d, server.Now())
				}
			}
			server.Advance(15 * time.Second)
		}
		if want := map[int]int{1: items, 2: items}; !maps.Equal(counted, want) {
			t.Errorf("items counted per day: %v, want %v", counted, want)
		}
		for _, g := range guards {
			if items, _, err := g.Used(t.Context(), core.Attempt{Actor: "ann"}); len(items) != 10 || err != nil {
				t.Errorf("%q, %v: want the items of the server's day", items, err)
			}
		}
	})
}

// TestQuotaDaysOfOtherLengths: a day has 23 hours in spring and 25 in autumn.
//
// Promise: Days follow the calendar of a time zone, also those of 23 or 25 hours.
func TestQuotaDaysOfOtherLengths(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		for i, c := range []struct {
			zone, begins string
			length       time.Duration
		}{
			{"Europe/Berlin", "2024-03-30T23:00:00Z", 23 * time.Hour},
			{"Europe/Berlin", "2024-10-26T22:00:00Z", 25 * time.Hour},
			{"America/Sao_Paulo", "2017-10-15T03:00:00Z", 23 * time.Hour},
			{"Asia/Beirut", "2022-10-28T21:00:00Z", 25 * time.Hour},
		} {
			clock := clockAt(t, c.begins)
			g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), fmt.Sprint("q", i),
				Options{Items: 1, Period: period.Daily(guardtest.Zone(t, c.zone))})
			clock.Advance(-time.Millisecond)
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: "yesterday"}),
				core.ReasonOK)
			clock.Advance(time.Millisecond)
			d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: "a7"})
			if guardtest.WantReason(t, d, core.ReasonOK); d.ResetAfter != c.length || d.Window != c.length {
				t.Errorf("%s: %+v: want %v", c.zone, d, c.length)
			}
			clock.Advance(c.length - time.Millisecond)
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: "a8"}), core.ReasonQuota)
			clock.Advance(time.Millisecond)
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: "a8"}), core.ReasonOK)
		}
	})
}

// TestQuotaDayRolled: when the server's clock is in another period at each call, the guard makes no third
// call.
func TestQuotaDayRolled(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		now, asked := time.Date(2030, 5, 1, 12, 0, 0, 0, time.UTC), 0
		e := guardtest.NewEngine(b, core.WithClock(func() time.Time {
			asked++
			now = now.Add(25 * time.Hour)
			return now
		}))
		g := New(e, "q", daily(2))
		d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: "a7"})
		if guardtest.WantReason(t, d, core.ReasonDayRolled); d.RetryAfter != time.Second || asked != 3 {
			t.Errorf("%+v after %d looks at the clock: want a retry in a second after 3, of the process and two calls",
				d, asked)
		}
		guardtest.Settle(t, g, d, core.Rollback)
		if _, _, err := g.Used(t.Context(), core.Attempt{Actor: "ann"}); !errors.Is(err, errRolled) {
			t.Errorf("Used: %v", err)
		}
		if err := g.Reset(t.Context(), core.Attempt{Actor: "ann"}); !errors.Is(err, errRolled) {
			t.Errorf("Reset: %v", err)
		}
	})
}

func TestQuotaInvalidPeriod(t *testing.T) {
	b := redistest.Mini(t)
	limit := time.Now().Add(time.Hour)
	clock := guardtest.NewClock()
	g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "q",
		Options{Items: 1, Period: func(time.Time) (begins, ends time.Time) {
			return limit.Add(-48 * time.Hour), limit
		}})
	guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: "a7"})
	clock.Advance(2 * time.Hour)
	_, err := g.Check(t.Context(), core.Attempt{Actor: "ann", Item: "a7"})
	if err == nil || guardtest.IsInvalid(err) || !strings.Contains(err.Error(), "the Period says") {
		t.Errorf("Check: %v", err)
	}
}

// TestQuotaChangedAtRunTime: a process with another number of items sees the items counted before.
func TestQuotaChangedAtRunTime(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		of := func(items int) *Guard { return newQuota(t, b, items) }
		three, one, four := of(3), of(1), of(4)
		for _, item := range []string{"a", "b", "c"} {
			guardtest.WantReason(t, guardtest.Check(t, three, core.Attempt{Actor: "ann", Item: item}), core.ReasonOK)
		}
		wantUsed(t, one, 0, "a", "b", "c")
		if d := guardtest.Check(t, one, core.Attempt{Actor: "ann", Item: "b"}); d.Reason != core.ReasonAgain ||
			d.Limit != 1 || d.Remaining != 0 {
			t.Errorf("%+v: want a known item", d)
		}
		guardtest.WantReason(t, guardtest.Check(t, one, core.Attempt{Actor: "ann", Item: "d"}), core.ReasonQuota)
		guardtest.WantReason(t, guardtest.Check(t, four, core.Attempt{Actor: "ann", Item: "d"}), core.ReasonOK)
		guardtest.WantReason(t, guardtest.Check(t, three, core.Attempt{Actor: "ann", Item: "e"}), core.ReasonQuota)
		guardtest.WantReason(t, guardtest.Check(t, four, core.Attempt{Actor: "ann", Item: "e"}), core.ReasonQuota)
	})
}

func TestQuotaReset(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newQuota(t, b, 1)
		d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: "a7", ID: "op"})
		guardtest.Check(t, g, core.Attempt{Actor: "bob", Item: "a7"})
		if err := g.Reset(t.Context(), core.Attempt{Actor: "ann"}); err != nil {
			t.Fatal(err)
		}
		wantUsed(t, g, 1)
		guardtest.Settle(t, g, d, core.Rollback) // from before the reset: nothing to undo
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: "a8", ID: "op"}),
			core.ReasonOK)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "bob", Item: "a8"}), core.ReasonQuota)
	})
}

func TestQuotaFullRedis(t *testing.T) {
	s := redistest.StartServer(t, "--maxmemory-policy", "noeviction")
	rdb := s.Client(t)
	g := newQuota(t, redistest.Backend{Client: rdb, Prefix: "full"}, 5)
	alone := guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: "alone", ID: "op"})
	shared := guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: "shared", ID: "op 2"})
	guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: "shared"})
	twice := guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: "twice", ID: "op 3"})
	guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: "twice", ID: "op 3"})
	rdb.ConfigSet(t.Context(), "maxmemory", "1")
	for _, item := range []string{"new", "shared"} {
		if _, err := g.Check(t.Context(), core.Attempt{Actor: "ann", Item: item}); err == nil ||
			!strings.Contains(err.Error(), "OOM") {
			t.Errorf("item %q in a full Redis: %v, want its OOM error", item, err)
		}
	}
	wantUsed(t, g, 2, "alone", "shared", "twice")

	// Counted items can be given back.
	guardtest.Settle(t, g, alone, core.Rollback)
	guardtest.Settle(t, g, shared, core.Rollback)
	guardtest.Settle(t, g, twice, core.Rollback)
	wantUsed(t, g, 3, "shared", "twice")
	rdb.ConfigSet(t.Context(), "maxmemory", "0")
	for _, id := range []string{"op", "op 2"} { // the operation IDs are free again
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: "new " + id, ID: id}),
			core.ReasonOK)
	}
}

func TestQuotaKeysExpire(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		for i, c := range []struct {
			period period.Period
			want   time.Duration // after 18:00 on 1 May
		}{
			{period.Daily(time.UTC), 7 * time.Hour},
			{period.Monthly(time.UTC), 30*24*time.Hour + 7*time.Hour},
			{period.Every(time.Minute), 2 * time.Minute},
		} {
			clock := clockAt(t, "2030-05-01T18:00:00Z")
			g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), fmt.Sprint("q", i),
				Options{Items: 3, Period: c.period})
			for _, item := range []string{"a7", "a8", "a8"} { // even when the keys exist already
				d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: item, ID: "of " + item})
				for _, key := range g.quotaKeys(d.Attempt, spanOf(d), "")[:2] {
					if ttl := b.Client.PTTL(t.Context(), key).Val(); ttl > c.want || ttl < c.want-time.Minute {
						t.Errorf("%q expires in %v, want %v", key, ttl, c.want)
					}
				}
			}
		}
	})
}

// TestQuotaAgainstModel makes random calls and compares the answers, and the keys in Redis, with a model in
// Go after each step.
func TestQuotaAgainstModel(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		engine := guardtest.NewEngine(b)
		number := 0
		rapid.Check(t, func(rt *rapid.T) {
			number++
			clock := clockAt(t, "2030-05-01T12:00:00Z")
			core.WithClock(clock.Now)(engine)
			limit := rapid.IntRange(1, 4).Draw(rt, "items")
			g := New(engine, fmt.Sprintf("q%d", number), Options{Items: limit, Period: period.Every(time.Minute)})
			g.clock = clock.Now
			m := quotaModel{}
			var allowed []core.Decision
			for range rapid.IntRange(1, 60).Draw(rt, "steps") {
				switch rapid.IntRange(0, 9).Draw(rt, "op") {
				default:
					a := core.Attempt{
						Actor: "ann",
						Item:  rapid.SampledFrom([]string{"a7", "{a 8}", "a9", "=|*", "a11", "a12"}).Draw(rt, "item"),
						ID:    rapid.SampledFrom([]string{"", "", "op", "op=", "op 3", "*"}).Draw(rt, "id"),
					}
					d, err := g.Check(t.Context(), a)
					reason, replayed := m.check(a, callOf(d), limit)
					if err != nil || d.Reason != reason || d.Replayed != replayed || d.Remaining != int64(limit-len(m)) {
						rt.Fatalf("%+v: %+v (%v), want %q, replayed %t, with %v", a, d, err, reason, replayed, m)
					}
					if d.Allowed {
						allowed = append(allowed, d)
					}
				case 0, 1, 2:
					if len(allowed) > 0 {
						d := rapid.SampledFrom(allowed).Draw(rt, "decision")
						if err := g.Settle(t.Context(), d, core.Rollback); err != nil {
							rt.Fatal(err)
						}
						m.undo(d)
					}
				case 3:
					if rapid.IntRange(0, 4).Draw(rt, "rare") == 0 {
						clock.Advance(time.Minute)
						m, allowed = quotaModel{}, nil
					}
				}
				m.compare(t, rt, b, g, clock.Now())
			}
		})
	})
}

// quotaModel holds, for each item that counts, the calls that received a yes for it.
type quotaModel map[string][]quotaCall

// quotaCall is such a call; one without a call means that the item is kept for good.
type quotaCall struct {
	id, call string
	reason   core.Reason
}

func (m quotaModel) check(a core.Attempt, call string, limit int) (reason core.Reason, replayed bool) {
	told := m[a.Item]
	reason = core.ReasonOK
	if len(told) > 0 {
		reason = core.ReasonAgain
	}
	if i := slices.IndexFunc(told, func(c quotaCall) bool { return a.ID != "" && c.id == a.ID }); i >= 0 {
		reason, replayed = told[i].reason, true
	} else if m.ids()[a.ID] {
		return core.ReasonConflict, false
	} else if len(told) == 0 && len(m) >= limit {
		return core.ReasonQuota, false
	}
	switch {
	case len(told) < 8:
		m[a.Item] = append(told, quotaCall{a.ID, call, reason})
	case len(told) == 8:
		m[a.Item] = append(told, quotaCall{})
	}
	return reason, replayed
}

func (m quotaModel) undo(d core.Decision) {
	told := m[d.Attempt.Item]
	if len(told) > 8 {
		return
	}
	told = slices.DeleteFunc(told, func(c quotaCall) bool { return c.call == callOf(d) })
	if m[d.Attempt.Item] = told; len(told) == 0 {
		delete(m, d.Attempt.Item)
	}
}

// ids returns the remembered operations whose ID came from outside.
func (m quotaModel) ids() map[string]bool {
	ids := map[string]bool{}
	for _, told := range m {
		for _, c := range told {
			if c.id != "" {
				ids[c.id] = true
			}
		}
	}
	return ids
}

// compare fails the test unless Redis holds the same as the model: the items, the same number of calls for
// each, and the operations; every key must have a TTL.
func (m quotaModel) compare(t *testing.T, rt *rapid.T, b redistest.Backend, g *Guard, now time.Time) {
	s, err := g.options.Period.At(now.UnixMilli())
	if err != nil {
		rt.Fatal(err)
	}
	keys := g.quotaKeys(core.Attempt{Actor: "ann"}, s, "")
	calls := map[string]int{}
	for item, told := range b.Client.HGetAll(t.Context(), keys[0]).Val() {
		calls[script.Decode(item)] = len(strings.Fields(told))
	}
	operations := map[string]bool{}
	for _, id := range b.Client.SMembers(t.Context(), keys[1]).Val() {
		operations[script.Decode(id)] = true
	}
	want := map[string]int{}
	for item, told := range m {
		want[item] = len(told)
	}
	if !maps.Equal(calls, want) || !maps.Equal(operations, m.ids()) {
		rt.Fatalf("Redis has %v and operations %v, want %v", calls, operations, m)
	}
	for _, key := range keys[:2] {
		if b.Client.PTTL(t.Context(), key).Val() == -1 {
			rt.Fatalf("%q has no TTL", key)
		}
	}
}

// spanOf returns the period in which an allowed attempt was counted.
func spanOf(d core.Decision) period.Span {
	claim, _ := core.ClaimOf[granted](d)
	return claim.in
}

// callOf returns the name of the call that an allowed attempt was granted.
func callOf(d core.Decision) string {
	claim, _ := core.ClaimOf[granted](d)
	return claim.call
}
