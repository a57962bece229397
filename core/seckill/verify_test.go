package seckill

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestVerifySeesTampering: the test changes each part of a sale directly.
//
// Promise: `Verify` sees where the parts of a sale differ.
func TestVerifySeesTampering(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{})
		for name, c := range map[string]struct {
			meddle func(keys []string)
			want   string
		}{
			"the counters, all of them": {func(keys []string) {
				b.Client.HIncrBy(t.Context(), keys[0], "stock", 2)
				b.Client.HIncrBy(t.Context(), keys[0], "left", 2)
			}, "outbox: stock: 9, want 11 (-2)"},
			"one counter": {func(keys []string) {
				b.Client.HIncrBy(t.Context(), keys[0], "left", 1)
			}, "counters: left + held + sold: 10, want 9 (+1)"},
			"a buyer": {func(keys []string) {
				b.Client.HDel(t.Context(), keys[1], "ann")
			}, "buyers: held + sold: 2, want 3 (-1)"},
			"a timer that is gone": {func(keys []string) {
				b.Client.ZRem(t.Context(), keys[2], "order-2")
			}, "wrong timers: 1, want 0"},
			"a timer of nobody": {func(keys []string) {
				b.Client.ZAdd(t.Context(), keys[2], redis.Z{Score: 1, Member: "order-3"})
			}, "wrong timers: 1, want 0"},
			"a timer that was moved": {func(keys []string) {
				b.Client.ZIncrBy(t.Context(), keys[2], 5, "order-2")
			}, "wrong timers: 2, want 0"},
			"a held reservation": {func(keys []string) {
				b.Client.HDel(t.Context(), keys[3], "order-2")
			}, "reservations: held: 0, want 2 (-2)"},
			"a sold reservation": {func(keys []string) {
				b.Client.HDel(t.Context(), keys[3], "order-1")
			}, "reservations: sold: 0, want 1 (-1)"},
			"an event of nothing": {func(keys []string) {
				b.Client.XAdd(t.Context(),
					&redis.XAddArgs{Stream: keys[4], Values: []string{"event", "sold", "quantity", "1", "late", "1"}})
			}, "outbox: sold: 2, want 1 (+1)"},
			"an outbox that is gone": {func(keys []string) {
				b.Client.Del(t.Context(), keys[4])
			}, "outbox: stock: 0, want 9 (-9)"},
		} {
			openSale(t, g, name, Sale{Stock: 7, PerBuyer: 5, Hold: time.Minute})
			guardtest.Settle(t, g, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: name, ID: "order-1"}),
				core.Commit)
			guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: name, ID: "order-2", Cost: 2})
			if _, err := g.Restock(t.Context(), name, "r", 2); err != nil {
				t.Fatal(err)
			}
			wantStatus(t, g, name, 6, 2, 1)
			c.meddle(g.saleKeys(name))
			r, err := g.Verify(t.Context(), name)
			if err != nil || r.Consistent() || r.Moving || !strings.Contains(r.String(), c.want) ||
				!strings.Contains(r.String(), "NOT consistent") {
				t.Errorf("%s: %v\n%v\nwant %q", name, err, r, c.want)
			}
		}
	})
}

func TestVerifyMalformedRecords(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "s", Options{})
		for i, meddle := range []func(keys []string){
			func(keys []string) { b.Client.HSet(t.Context(), keys[0], "left", "many") },
			func(keys []string) { b.Client.HSet(t.Context(), keys[1], "ann", "many") },
			func(keys []string) { b.Client.HSet(t.Context(), keys[3], "id", "held") },
			func(keys []string) { b.Client.HSet(t.Context(), keys[3], "id", "held ann x 1") },
			func(keys []string) { b.Client.HSet(t.Context(), keys[3], "id", "held ann 1 x") },
			func(keys []string) {
				b.Client.XAdd(t.Context(), &redis.XAddArgs{Stream: keys[4], Values: []string{"a", "b"}})
			},
		} {
			item := fmt.Sprint(i)
			openSale(t, g, item, Sale{Stock: 7})
			guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: item})
			meddle(g.saleKeys(item))
			if r, err := g.Verify(t.Context(), item); err == nil {
				t.Errorf("%d: %v", i, r)
			}
		}
		if _, err := g.Verify(t.Context(), "unknown"); !errors.Is(err, ErrNoSale) {
			t.Errorf("an unknown sale: %v", err)
		}
	})
}

// TestVerifyCountsInPieces: every part has more records than one call returns.
func TestVerifyCountsInPieces(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "s", Options{})
		all := int64(2*verifyChunk + 400)
		if b.Mini != nil { // it is slow, and two pieces do
			all = verifyChunk + 400
		}
		openSale(t, g, "tv", Sale{Stock: 5000})
		for i := range all {
			d := guardtest.Check(t, g, core.Attempt{Actor: fmt.Sprint("buyer", i), Resource: "tv"})
			if i%2 == 0 {
				guardtest.Settle(t, g, d, guardtest.Ending(i%4 == 0))
			}
		}
		wantStatus(t, g, "tv", 5000-all*3/4, all/2, all/4)
	})
}

// busy is a client that sees each command before it is sent.
type busy struct {
	script.Client
	before func(cmd redis.Cmder)
}

func (b busy) Process(ctx context.Context, cmd redis.Cmder) error {
	b.before(cmd)
	return b.Client.Process(ctx, cmd)
}

// TestVerifyOfASaleThatMoves: the changes leave the status as it is, but Verify detects them.
func TestVerifyOfASaleThatMoves(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		other := New(guardtest.NewEngine(b), "s", Options{})
		openSale(t, other, "tv", Sale{Stock: 5})
		changes := 0 // that are to come
		rdb := busy{b.Client, func(cmd redis.Cmder) {
			if cmd.Name() == "hlen" && changes > 0 {
				changes--
				guardtest.Settle(t, other, guardtest.Check(t, other, core.Attempt{Actor: "ann", Resource: "tv"}),
					core.Rollback)
			}
		}}
		e := guardtest.NewEngineOver(b, rdb)
		g := New(e, "s", Options{})

		changes = 1000
		r, err := g.Verify(t.Context(), "tv")
		if err != nil || !r.Moving || r.Consistent() || !strings.Contains(r.String(), "moving") {
			t.Errorf("%v\n%v\nwant a sale that moves", err, r)
		}
		if tries := (1000 - changes) / 2; tries != verifyTries {
			t.Errorf("counted %d times, want %d", tries, verifyTries)
		}
		changes = 3 // the second try moves too, the third does not
		wantConsistent(t, g, "tv")
		if changes != 0 {
			t.Errorf("%d changes have not come", changes)
		}
	})
}
