package redpacket

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// inAnHour returns a packet that stays open during a test.
func inAnHour(total int64, shares int) Packet {
	return Packet{Total: total, Shares: shares, Expires: time.Now().Add(time.Hour)}
}

func createPacket(t testing.TB, g *Guard, id string, p Packet) {
	t.Helper()
	if created, err := g.Create(t.Context(), id, p); err != nil || !created {
		t.Fatalf("Create(%q, %+v): %v, %v", id, p, created, err)
	}
}

// verified returns the verification of a packet. It also reads the keys itself, so that an error in Verify
// cannot hide one in a script.
func verified(t rapid.TB, g *Guard, rdb redis.UniversalClient, id string) Verification {
	t.Helper()
	ctx := context.Background()
	v, err := g.Verify(ctx, id)
	if err != nil {
		t.Fatalf("Verify: %v", err)
	}
	keys := g.packetKeys(id)
	left, grabbed := rdb.LRange(ctx, keys[1], 0, -1).Val(), rdb.HGetAll(ctx, keys[2]).Val()
	refunded, _ := rdb.HGet(ctx, keys[0], "refunded").Int64()
	sum := refunded
	for _, amount := range slices.Concat(left, slices.Collect(maps.Values(grabbed))) {
		n, err := strconv.ParseInt(amount, 10, 64)
		if err != nil || n < v.Packet.Min {
			t.Fatalf("a share of %q: at least %d", amount, v.Packet.Min)
		}
		sum += n
	}
	if sum != v.Packet.Total || v.Refunded != refunded || len(v.Left) != len(left) ||
		len(v.Grabbed) != len(grabbed) {
		t.Fatalf("left %v + grabbed %v + refunded %d is not the total: %+v", left, grabbed, refunded, v)
	}
	if operations := rdb.HLen(ctx, keys[3]).Val(); operations != int64(len(grabbed)) {
		t.Fatalf("%d grabs by %d operations", len(grabbed), operations)
	}
	return v
}

// wantAmount wants a decision with this reason and amount.
func wantAmount(t *testing.T, d core.Decision, reason core.Reason, amount int64, replayed bool) {
	t.Helper()
	guardtest.WantReason(t, d, reason)
	if Amount(d) != amount || d.Replayed != replayed {
		t.Fatalf("%+v: want an amount of %d, replayed %v", d, amount, replayed)
	}
}

// Promise: A user gets one share. A retry gets the same amount.
func TestRedPacketGivesEachUserOneShare(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "r", Options{})
		createPacket(t, g, "p", inAnHour(100, 3))
		next := verified(t, g, b.Client, "p").Left
		users := []string{"ann", "bob", "cid"}
		for i, user := range users {
			d := guardtest.Check(t, g, core.Attempt{Actor: user, Resource: "p"})
			wantAmount(t, d, core.ReasonOK, next[i], false)
			if d.Limit != 3 || d.Remaining != int64(2-i) || d.RetryAfter != 0 {
				t.Errorf("%+v", d)
			}
			// The user keeps the share, however the request ended.
			guardtest.Settle(t, g, d, guardtest.Ending(i%2 == 0))
		}
		for i, user := range users {
			d := guardtest.Check(t, g, core.Attempt{Actor: user, Resource: "p"})
			wantAmount(t, d, core.ReasonDuplicate, next[i], false)
			guardtest.Settle(t, g, d, core.Rollback)
		}
		wantAmount(t, guardtest.Check(t, g, core.Attempt{Actor: "dan", Resource: "p"}), core.ReasonEmpty, 0, false)
		v := verified(t, g, b.Client, "p")
		if want := map[string]int64{"ann": next[0], "bob": next[1], "cid": next[2]}; !maps.Equal(v.Grabbed, want) ||
			len(v.Left) > 0 {
			t.Errorf("%+v, want grabbed %v", v, want)
		}
	})
}

func TestRedPacketThatIsNotThere(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "r", Options{})
		wantAmount(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p"}), core.ReasonNotReady, 0,
			false)
		for _, id := range []string{"p", ""} {
			if _, err := g.Refund(t.Context(), id); !errors.Is(err, ErrNoPacket) {
				t.Errorf("Refund(%q): %v", id, err)
			}
			if _, err := g.Verify(t.Context(), id); !errors.Is(err, ErrNoPacket) {
				t.Errorf("Verify(%q): %v", id, err)
			}
		}
	})
}

func TestRedPacketIsCreatedOnce(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "r", Options{})
		p := Packet{Total: 1000, Shares: 10, Min: 5, Expires: clock.Now().Add(time.Hour)}
		createPacket(t, g, "p", p)
		guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p"})
		before := verified(t, g, b.Client, "p")
		if !before.Packet.Expires.Equal(p.Expires) || before.Packet.Total != 1000 || before.Packet.Shares != 10 ||
			before.Packet.Min != 5 {
			t.Errorf("%+v, want %+v", before.Packet, p)
		}
		for range 2 {
			if created, err := g.Create(t.Context(), "p", p); created || err != nil {
				t.Errorf("Create again: %v, %v", created, err)
			}
			clock.Advance(2 * time.Hour) // also after it has expired
		}
		for _, other := range []Packet{
			{Total: 1001, Shares: 10, Min: 5, Expires: p.Expires},
			{Total: 1000, Shares: 9, Min: 5, Expires: p.Expires},
			{Total: 1000, Shares: 10, Min: 4, Expires: p.Expires},
			{Total: 1000, Shares: 10, Min: 5, Expires: p.Expires.Add(time.Second)},
		} {
			if created, err := g.Create(t.Context(), "p", other); created || !guardtest.IsInvalid(err) {
				t.Errorf("Create with other figures: %v, %v", created, err)
			}
		}
		if after := verified(t, g, b.Client, "p"); !slices.Equal(after.Left, before.Left) {
			t.Errorf("%v are left, want %v", after.Left, before.Left)
		}
	})
}

func TestRedPacketInvalidPackets(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "r", Options{})
		soon := time.Now().Add(time.Hour)
		for _, p := range []Packet{
			{}, {Total: 10, Expires: soon}, {Total: 10, Shares: -1, Expires: soon},
			{Total: 20_000, Shares: maxShares + 1, Expires: soon},
			{Shares: 1, Expires: soon}, {Total: -5, Shares: 1, Expires: soon}, {Total: 9, Shares: 10, Expires: soon},
			{Total: 10, Shares: 2, Min: -1, Expires: soon}, {Total: 19, Shares: 2, Min: 10, Expires: soon},
			{Total: core.MaxAmount, Shares: 4097, Min: 1 << 52, Expires: soon},
			{Total: 10, Shares: 8, Min: math.MaxInt64/4 + 1, Expires: soon},
			{Total: core.MaxAmount + 1, Shares: 2, Expires: soon}, {Total: math.MaxInt64, Shares: 2, Expires: soon},
			{Total: 10, Shares: 2}, {Total: 10, Shares: 2, Expires: time.Now().Add(-time.Minute)},
			{Total: 10, Shares: 2, Expires: time.Date(2201, 1, 1, 0, 0, 0, 0, time.UTC)},
		} {
			if created, err := g.Create(t.Context(), "p", p); created || !guardtest.IsInvalid(err) {
				t.Errorf("Create(%+v): %v, %v", p, created, err)
			}
		}
		if _, err := g.Create(t.Context(), "", inAnHour(10, 2)); !guardtest.IsInvalid(err) {
			t.Errorf("Create without an ID: %v", err)
		}
		if _, err := g.Verify(t.Context(), "p"); !errors.Is(err, ErrNoPacket) {
			t.Errorf("Verify: %v", err)
		}
	})
}

func TestRedPacketsAtTheBounds(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "r", Options{})
		for id, p := range map[string]Packet{
			"largest": inAnHour(core.MaxAmount, 1), "large and many": inAnHour(core.MaxAmount, maxShares),
			"least": inAnHour(maxShares, maxShares),
			"last":  {Total: 1, Shares: 1, Expires: time.Date(2200, 12, 31, 0, 0, 0, 0, time.UTC)},
		} {
			createPacket(t, g, id, p)
			next := verified(t, g, b.Client, id).Left
			if len(next) != p.Shares {
				t.Fatalf("%s: %d shares, want %d", id, len(next), p.Shares)
			}
			wantAmount(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: id}), core.ReasonOK, next[0],
				false)
			verified(t, g, b.Client, id)
		}
	})
}

func TestRedPacketReplay(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "r", Options{})
		createPacket(t, g, "p", Packet{Total: 100, Shares: 1, Expires: clock.Now().Add(time.Minute)})
		grab := core.Attempt{Actor: "ann", Resource: "p", ID: "op"}
		wantAmount(t, guardtest.Check(t, g, grab), core.ReasonOK, 100, false)
		for _, wait := range []time.Duration{0, time.Hour} { // empty, later closed: the share stays ann's
			clock.Advance(wait)
			wantAmount(t, guardtest.Check(t, g, grab), core.ReasonOK, 100, true)
			wantAmount(t, guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "p", ID: "op"}),
				core.ReasonConflict, 0, false)
			wantAmount(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", ID: "op 2"}),
				core.ReasonDuplicate, 100, false)
		}
		if _, err := g.Refund(t.Context(), "p"); err != nil {
			t.Fatal(err)
		}
		wantAmount(t, guardtest.Check(t, g, grab), core.ReasonOK, 100, true)
	})
}

func TestRedPacketInvalidAttempts(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "r", Options{})
		createPacket(t, g, "p", inAnHour(100, 5))
		for _, a := range []core.Attempt{
			{Resource: "p"}, {Actor: "ann"}, {Actor: "ann", Resource: "p", Cost: -1},
			{Actor: "ann", Resource: "p", Cost: 2},
			{Actor: "ann", Resource: "p", Cost: math.MaxInt64},
		} {
			if d, err := g.Check(t.Context(), a); !guardtest.IsInvalid(err) || d.Allowed {
				t.Errorf("%+v: %+v, %v", a, d, err)
			}
		}
		if left := verified(t, g, b.Client, "p").Left; len(left) != 5 {
			t.Errorf("%v are left", left)
		}
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Cost: 0}),
			core.ReasonOK)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "p", Cost: 1}),
			core.ReasonOK)
	})
}

// Promise: The rest is refunded once, after the expiry.
func TestRedPacketExpiryAndRefund(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "r", Options{})
		createPacket(t, g, "p", Packet{Total: 100, Shares: 4, Expires: clock.Now().Add(time.Minute)})
		ann := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p"})
		clock.Advance(time.Minute - time.Millisecond)
		bob := guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "p"})
		guardtest.WantReason(t, bob, core.ReasonOK)
		if _, err := g.Refund(t.Context(), "p"); !errors.Is(err, ErrPacketOpen) {
			t.Fatalf("Refund in time to grab: %v", err)
		}
		clock.Advance(time.Millisecond)
		wantAmount(t, guardtest.Check(t, g, core.Attempt{Actor: "cid", Resource: "p"}), core.ReasonClosed, 0, false)
		wantAmount(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p"}), core.ReasonDuplicate,
			Amount(ann), false)

		rest := 100 - Amount(ann) - Amount(bob)
		for range 2 {
			if amount, err := g.Refund(t.Context(), "p"); amount != rest || err != nil {
				t.Errorf("Refund: %d, %v, want %d", amount, err, rest)
			}
			clock.Advance(-time.Minute) // a clock that is set back opens nothing
			wantAmount(t, guardtest.Check(t, g, core.Attempt{Actor: "dan", Resource: "p"}), core.ReasonClosed, 0,
				false)
		}
		v := verified(t, g, b.Client, "p")
		if v.Refunded != rest || len(v.Left) != 0 || len(v.Grabbed) != 2 {
			t.Errorf("%+v", v)
		}
	})
}

func TestRedPacketRefundOfNothing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "r", Options{})
		createPacket(t, g, "p", Packet{Total: 7, Shares: 1, Expires: clock.Now().Add(time.Minute)})
		guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p"})
		clock.Advance(time.Minute)
		for range 2 {
			if amount, err := g.Refund(t.Context(), "p"); amount != 0 || err != nil {
				t.Errorf("Refund: %d, %v", amount, err)
			}
		}
		verified(t, g, b.Client, "p")
	})
}

// TestRedPacketHostileText: no two users, packets or operations count as one, and Verify knows the users.
func TestRedPacketHostileText(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "r", Options{})
		createPacket(t, g, "users", inAnHour(10_000, 100))
		createPacket(t, g, "ids", inAnHour(10_000, 100))
		want := map[string]int64{}
		for i, text := range guardtest.Hostile {
			createPacket(t, g, "packet "+text, inAnHour(10, 1))
			for _, a := range []core.Attempt{
				{Actor: text, Resource: "users"}, {Actor: strconv.Itoa(i), Resource: "ids", ID: text},
				{Actor: "ann", Resource: "packet " + text},
			} {
				d := guardtest.Check(t, g, a)
				if !d.Allowed || d.Replayed {
					t.Errorf("%.40q collides with another: %+v", text, d)
				}
				if a.Resource == "users" && len(text) < 100 {
					want[text] = Amount(d)
				}
			}
		}
		v := verified(t, g, b.Client, "users")
		for user, amount := range want {
			if v.Grabbed[user] != amount {
				t.Errorf("%q has %d, want %d", user, v.Grabbed[user], amount)
			}
		}
		if len(v.Grabbed) != len(guardtest.Hostile) {
			t.Errorf("%d users, want %d", len(v.Grabbed), len(guardtest.Hostile))
		}
	})
}

// TestRedPacketRace: many more users than shares grab at the same time, in several processes.
func TestRedPacketRace(t *testing.T) {
	const shares, total = 100, 12_345
	for _, clients := range []int{2, 16} {
		t.Run(fmt.Sprint(clients, " clients"), func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				users := 1000
				switch {
				case guardtest.Soak() && b.Mini != nil:
					users = 10_000 // a miniredis is slow
				case guardtest.Soak():
					users = 25_000
				}
				setUp := New(guardtest.NewEngine(b), "r", Options{})
				createPacket(t, setUp, "p", inAnHour(total, shares))
				todo := make(chan string)
				var won, sum, empty atomic.Int64
				var all sync.WaitGroup
				for range clients {
					process := b
					process.Client = b.NewClient(t)
					g := New(guardtest.NewEngine(process), "r", Options{})
					for range 128 / clients {
						all.Go(func() {
							for user := range todo {
								grab := core.Attempt{Actor: user, Resource: "p", ID: "id of " + user}
								d, err := g.Check(t.Context(), grab)
								switch {
								case err != nil:
									t.Error(err)
								case d.Allowed:
									won.Add(1)
									sum.Add(Amount(d))
									again, err := g.Check(t.Context(), grab)
									if err != nil || !again.Allowed || !again.Replayed || Amount(again) != Amount(d) {
										t.Errorf("%s asks again: %+v, %v, want %d", user, again, err, Amount(d))
									}
									again, err = g.Check(t.Context(), core.Attempt{Actor: user, Resource: "p"})
									if err != nil || again.Reason != core.ReasonDuplicate || Amount(again) != Amount(d) {
										t.Errorf("%s grabs again: %+v, %v, want %d", user, again, err, Amount(d))
									}
								case d.Reason == core.ReasonEmpty:
									empty.Add(1)
								default:
									t.Errorf("%s: %+v", user, d)
								}
							}
						})
					}
				}
				for i := range users {
					todo <- fmt.Sprint("user ", i)
				}
				close(todo)
				all.Wait()
				if won.Load() != shares || sum.Load() != total || empty.Load() != int64(users-shares) {
					t.Errorf("%d won %d, %d came too late; want %d, %d, %d", won.Load(), sum.Load(), empty.Load(), shares,
						total, users-shares)
				}
				if v := verified(t, setUp, b.Client, "p"); len(v.Left) != 0 || len(v.Grabbed) != shares {
					t.Errorf("%d left, %d grabbed", len(v.Left), len(v.Grabbed))
				}
			})
		})
	}
}

// TestRedPacketRefundRacesWithGrabs: the packet expires during the grabs. The amounts that users got and the
// refund, which each call returns alike, add up to the total.
func TestRedPacketRefundRacesWithGrabs(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "r", Options{})
		createPacket(t, g, "p", Packet{Total: 10_000, Shares: 200, Expires: clock.Now().Add(time.Minute)})
		var grabbed atomic.Int64
		refunds := make([]int64, 20)
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				d, err := g.Check(t.Context(), core.Attempt{Actor: fmt.Sprint(i), Resource: "p"})
				if err != nil || d.Reason != core.ReasonOK && d.Reason != core.ReasonClosed {
					t.Errorf("%+v, %v", d, err)
				}
				grabbed.Add(Amount(d))
				if i == 50 {
					clock.Advance(time.Minute)
				}
			})
		}
		for i := range refunds {
			all.Go(func() {
				for {
					amount, err := g.Refund(t.Context(), "p")
					if err == nil {
						refunds[i] = amount
						return
					}
					if !errors.Is(err, ErrPacketOpen) {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		v := verified(t, g, b.Client, "p")
		if len(v.Left) != 0 || v.Refunded+grabbed.Load() != 10_000 {
			t.Errorf("%d grabbed, %d refunded, %v left", grabbed.Load(), v.Refunded, v.Left)
		}
		if slices.Min(refunds) != v.Refunded || slices.Max(refunds) != v.Refunded {
			t.Errorf("refunds %v, want %d each", refunds, v.Refunded)
		}
	})
}

// TestRedPacketLostReply: go-redis sends the call again without a visible difference. There is no second
// share, and the first answer is not marked as a replay.
func TestRedPacketLostReply(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		e := guardtest.NewEngine(b, guardtest.WithClock(clock))
		g := New(e, "r", Options{})
		if err := e.Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		lost := 0
		lose := func() {
			t.Helper()
			if faults.Swallowed() != lost {
				t.Fatalf("%d replies were swallowed, want %d", faults.Swallowed(), lost)
			}
			lost++
			faults.SwallowReply("evalsha")
		}
		lose()
		createPacket(t, g, "p", Packet{Total: 100, Shares: 3, Expires: clock.Now().Add(time.Minute)})
		next := verified(t, g, b.Client, "p").Left
		lose()
		wantAmount(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p"}), core.ReasonOK, next[0],
			false)
		lose()
		wantAmount(t, guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "p", ID: "op"}), core.ReasonOK,
			next[1], false)
		wantAmount(t, guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "p", ID: "op"}), core.ReasonOK,
			next[1], true)
		clock.Advance(time.Minute)
		lose()
		if amount, err := g.Refund(t.Context(), "p"); amount != next[2] || err != nil {
			t.Errorf("Refund: %d, %v, want %d", amount, err, next[2])
		}
		lose()
		verified(t, g, b.Client, "p")
		if faults.Swallowed() != lost {
			t.Errorf("%d replies were swallowed, want %d", faults.Swallowed(), lost)
		}
	})
}

// TestRedPacketNoAnswerInTime: a grab is made, but its answer is late. Check with the returned attempt
// returns the amount, not as a replay.
func TestRedPacketNoAnswerInTime(t *testing.T) {
	b := redistest.Single(t)
	faults := redistest.NewFaults(t)
	plain := New(guardtest.NewEngine(b), "r", Options{})
	createPacket(t, plain, "p", inAnHour(100, 2))
	slow := b
	slow.Client = b.NewClientWith(t, faults)
	g := New(guardtest.NewEngine(slow, core.WithDeadline(100*time.Millisecond)), "r", Options{})
	again := func(a core.Attempt) (d core.Decision) {
		t.Helper()
		redistest.Eventually(t, time.Minute, func() (answered bool) {
			var err error
			d, err = g.Check(t.Context(), a)
			a = d.Attempt
			return err == nil
		}, "the grab is answered")
		return d
	}
	// opens a connection and loads the script
	again(core.Attempt{Actor: "first", Resource: "p"})

	faults.Hang(true)
	d := core.Decision{Attempt: core.Attempt{Actor: "ann", Resource: "p", ID: "op"}}
	redistest.Eventually(t, time.Minute, func() bool { // on a busy machine the call may not leave in time
		var err error
		if d, err = g.Check(t.Context(), d.Attempt); err == nil {
			t.Fatal("want a deadline that is over")
		}
		v, err := plain.Verify(t.Context(), "p")
		return err == nil && len(v.Left) == 0
	}, "the grab is made")
	faults.Heal()
	amount := verified(t, plain, b.Client, "p").Grabbed["ann"]
	d = again(d.Attempt)
	wantAmount(t, d, core.ReasonOK, amount, false)
	wantAmount(t, guardtest.Check(t, plain, core.Attempt{Actor: "ann", Resource: "p", ID: "op"}), core.ReasonOK,
		amount, true)
	verified(t, plain, b.Client, "p")
}

// TestRedPacketKilledServer kills a Redis with persistence during the grabs. Users keep the amounts that they
// were told.
func TestRedPacketKilledServer(t *testing.T) {
	s := redistest.StartServer(t, "--appendonly", "yes", "--appendfsync", "always")
	// A failed call has ended by then: none arrives after the restart.
	rdb := redis.NewClient(&redis.Options{
		Addr: s.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true,
	})
	defer rdb.Close()
	g := New(core.New(rdb, core.WithDeadline(time.Minute), core.WithObserver(guardtest.Ignore{})), "r",
		Options{})
	p := inAnHour(10_000, 1000)
	createPacket(t, g, "p", p)
	var mu sync.Mutex
	told := map[string]int64{}
	enough := make(chan struct{})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := 0; ; n++ {
				user := fmt.Sprint(i, " ", n)
				d, err := g.Check(t.Context(), core.Attempt{Actor: user, Resource: "p", ID: user})
				if err != nil {
					return
				}
				mu.Lock()
				if told[user] = Amount(d); len(told) == 100 {
					close(enough)
				}
				mu.Unlock()
			}
		})
	}
	<-enough
	s.Kill()
	all.Wait()
	s.Start()
	after := s.Client(t)
	redistest.Eventually(t, time.Minute, func() bool { return after.Ping(t.Context()).Err() == nil },
		"the server answers")
	g = New(core.New(after, core.WithDeadline(time.Minute), core.WithObserver(guardtest.Ignore{})), "r",
		Options{})
	if created, err := g.Create(t.Context(), "p", p); created || err != nil {
		t.Errorf("Create again: %v, %v", created, err)
	}
	v := verified(t, g, after, "p")
	for user, amount := range told {
		if v.Grabbed[user] != amount {
			t.Errorf("%s was told %d and has %d", user, amount, v.Grabbed[user])
		}
		wantAmount(t, guardtest.Check(t, g, core.Attempt{Actor: user, Resource: "p", ID: user}), core.ReasonOK,
			amount, true)
	}
	if len(v.Grabbed) > len(told)+8 {
		t.Errorf("%d have grabbed, %d were told", len(v.Grabbed), len(told))
	}
}

func TestRedPacketFullRedis(t *testing.T) {
	s := redistest.StartServer(t, "--maxmemory-policy", "noeviction")
	rdb := s.Client(t)
	clock := guardtest.NewClock()
	g := New(core.New(rdb, core.WithObserver(guardtest.Ignore{}), core.WithDeadline(time.Minute),
		guardtest.WithClock(clock)), "r", Options{})
	p := Packet{Total: 100, Shares: 3, Expires: clock.Now().Add(time.Minute)}
	createPacket(t, g, "p", p)
	ann := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", ID: "op"})
	before := verified(t, g, rdb, "p")

	full := func(what string, err error) {
		t.Helper()
		if err == nil || guardtest.IsInvalid(err) {
			t.Errorf("%s in a full Redis: %v", what, err)
		}
		if after := verified(t, g, rdb, "p"); !slices.Equal(after.Left, before.Left) ||
			!maps.Equal(after.Grabbed, before.Grabbed) {
			t.Errorf("%s in a full Redis: %+v, want %+v", what, after, before)
		}
	}
	rdb.ConfigSet(t.Context(), "maxmemory", "1")
	_, err := g.Check(t.Context(), core.Attempt{Actor: "bob", Resource: "p"})
	full("a grab", err)
	_, err = g.Create(t.Context(), "other", p)
	full("a packet", err)
	if _, err := g.Verify(t.Context(), "other"); !errors.Is(err, ErrNoPacket) {
		t.Errorf("half a packet: %v", err)
	}
	wantAmount(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", ID: "op"}), core.ReasonOK,
		Amount(ann), true)
	clock.Advance(time.Minute)
	_, err = g.Refund(t.Context(), "p")
	full("a refund", err)

	rdb.ConfigSet(t.Context(), "maxmemory", "0")
	if amount, err := g.Refund(t.Context(), "p"); amount != 100-Amount(ann) || err != nil {
		t.Errorf("Refund: %d, %v", amount, err)
	}
	verified(t, g, rdb, "p")
}

// TestRedPacketThatDoesNotAddUp changes the keys of a packet directly: then it gives nothing away.
func TestRedPacketThatDoesNotAddUp(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "r", Options{})
		p := Packet{Total: 100, Shares: 3, Expires: clock.Now().Add(time.Minute)}
		for name, meddle := range map[string]func(keys []string){
			"the shares are lost":  func(keys []string) { b.Client.Del(t.Context(), keys[1]) },
			"a share is lost":      func(keys []string) { b.Client.LPop(t.Context(), keys[1]) },
			"the grabs are lost":   func(keys []string) { b.Client.Del(t.Context(), keys[2]) },
			"a share is worthless": func(keys []string) { b.Client.LSet(t.Context(), keys[1], 0, 0) },
			"the packet is lost":   func(keys []string) { b.Client.Del(t.Context(), keys[0]) },
		} {
			createPacket(t, g, name, p)
			guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: name})
			meddle(g.packetKeys(name))
			switch name {
			case "the packet is lost":
				guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: name}),
					core.ReasonNotReady)
				if created, err := g.Create(t.Context(), name, p); created || err == nil || guardtest.IsInvalid(err) {
					t.Errorf("%s: Create: %v, %v", name, created, err)
				}
				continue
			case "a share is worthless": // Verify detects it, a grab does not
			default:
				if d, err := g.Check(t.Context(), core.Attempt{Actor: "bob", Resource: name}); d.Allowed || err == nil ||
					guardtest.IsInvalid(err) {
					t.Errorf("%s: Check: %+v, %v", name, d, err)
				}
			}
			if _, err := g.Verify(t.Context(), name); err == nil || errors.Is(err, ErrNoPacket) {
				t.Errorf("%s: Verify: %v", name, err)
			}
		}
		clock.Advance(time.Minute)
		for _, name := range []string{"the shares are lost", "a share is lost", "the grabs are lost",
			"a share is worthless"} {
			if amount, err := g.Refund(t.Context(), name); amount != 0 || err == nil || errors.Is(err, ErrNoPacket) {
				t.Errorf("%s: Refund: %d, %v", name, amount, err)
			}
		}
	})
}

func TestRedPacketKeysExpire(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "r", Options{Keep: time.Hour})
		createPacket(t, g, "p", Packet{Total: 100, Shares: 3, Expires: clock.Now().Add(2 * time.Hour)})
		clock.Advance(time.Hour) // a late grab does not extend a TTL
		guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p"})
		wantTTL := func(keys ...string) {
			t.Helper()
			for _, key := range keys {
				if ttl := b.Client.PTTL(t.Context(), key).Val(); ttl > 3*time.Hour || ttl < 3*time.Hour-time.Minute {
					t.Errorf("%q expires in %v, want 3h", key, ttl)
				}
			}
		}
		keys := g.packetKeys("p")
		wantTTL(keys...)
		clock.Advance(time.Hour)
		if _, err := g.Refund(t.Context(), "p"); err != nil {
			t.Fatal(err)
		}
		wantTTL(keys[0], keys[2], keys[3])
		if n := b.Client.Exists(t.Context(), keys[1]).Val(); n != 0 {
			t.Error("the shares are there after the refund")
		}
	})
}

// TestRedPacketAgainstModel runs random operations and compares answers and records with a model in Go after
// each step.
//
// Promise: Left, grabbed and refunded add up to the total at all times.
func TestRedPacketAgainstModel(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		engine := guardtest.NewEngine(b)
		number := 0
		rapid.Check(t, func(rt *rapid.T) {
			number++
			clock := guardtest.NewClock()
			core.WithClock(clock.Now)(engine)
			g := New(engine, fmt.Sprintf("r%d", number), Options{})
			p := Packet{Shares: rapid.IntRange(1, 5).Draw(rt, "shares"), Min: rapid.Int64Range(1, 3).Draw(rt, "min")}
			p.Total = int64(p.Shares)*p.Min + rapid.Int64Range(0, 100).Draw(rt, "extra")
			p.Expires = clock.Now().Add(time.Duration(rapid.IntRange(1, 20).Draw(rt, "seconds")) * time.Second)
			m := &packetModel{packet: p, grabbed: map[string]int64{}, operations: map[string]string{}}
			for range rapid.IntRange(1, 40).Draw(rt, "steps") {
				clock.Advance(time.Duration(rapid.IntRange(0, 1500).Draw(rt, "ms")) * time.Millisecond)
				m.over = !clock.Now().Before(p.Expires)
				switch rapid.IntRange(0, 6).Draw(rt, "op") {
				case 0:
					created, err := g.Create(t.Context(), "p", p)
					if wantErr := !m.created && m.over; created == m.created && !wantErr ||
						guardtest.IsInvalid(err) != wantErr || !wantErr && err != nil {
						rt.Fatalf("create: %v, %v, want the model %+v", created, err, m)
					}
					if created {
						m.created = true
						m.left = verified(rt, g, b.Client, "p").Left
					}
				case 1:
					amount, err := g.Refund(t.Context(), "p")
					if want, wantErr := m.refund(); amount != want || !errors.Is(err, wantErr) {
						rt.Fatalf("refund: %d, %v, want %d, %v", amount, err, want, wantErr)
					}
				default:
					a := core.Attempt{
						Actor:    rapid.SampledFrom([]string{"ann", "bob", "{c}", "dan", "", "e f"}).Draw(rt, "user") + "!",
						Resource: "p",
						ID: rapid.SampledFrom([]string{"1", "2", "3", "1234567890123456789", "1234567890123456788",
							"6"}).Draw(rt, "id"),
					}
					d, err := g.Check(t.Context(), a)
					if reason, amount, replayed := m.grab(a); err != nil || d.Reason != reason || Amount(d) != amount ||
						d.Replayed != replayed {
						rt.Fatalf("grab %+v: %+v (%v), want %q, %d, replayed %v", a, d, err, reason, amount, replayed)
					}
				}
				if !m.created {
					continue
				}
				v := verified(rt, g, b.Client, "p")
				if !slices.Equal(v.Left, m.left) || !maps.Equal(v.Grabbed, m.grabbed) || v.Refunded != m.refunded {
					rt.Fatalf("%+v, want %+v", v, m)
				}
			}
		})
	})
}

type packetModel struct {
	packet     Packet
	created    bool
	over       bool
	left       []int64
	grabbed    map[string]int64
	operations map[string]string // ID -> user
	refunded   int64
}

func (m *packetModel) grab(a core.Attempt) (reason core.Reason, amount int64, replayed bool) {
	owner, used := m.operations[a.ID]
	amount, has := m.grabbed[a.Actor]
	switch {
	case !m.created:
		return core.ReasonNotReady, 0, false
	case used && owner != a.Actor:
		return core.ReasonConflict, 0, false
	case used:
		return core.ReasonOK, amount, true
	case has:
		return core.ReasonDuplicate, amount, false
	case m.over:
		return core.ReasonClosed, 0, false
	case len(m.left) == 0:
		return core.ReasonEmpty, 0, false
	}
	amount, m.left = m.left[0], m.left[1:]
	m.grabbed[a.Actor], m.operations[a.ID] = amount, a.Actor
	return core.ReasonOK, amount, false
}

func (m *packetModel) refund() (int64, error) {
	switch {
	case !m.created:
		return 0, ErrNoPacket
	case !m.over:
		return 0, ErrPacketOpen
	}
	for _, amount := range m.left {
		m.refunded += amount
	}
	m.left = nil
	return m.refunded, nil
}
