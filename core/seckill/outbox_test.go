package seckill

import (
	"context"
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

// wantEvents wants exactly these events in the outbox, one per line as "kind id buyer quantity".
func wantEvents(t *testing.T, g *Guard, item string, want ...string) {
	t.Helper()
	events, err := g.Events(t.Context(), item, "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range events {
		line := fmt.Sprintf("%s %s %s %d", e.Kind, e.ID, e.Buyer, e.Quantity)
		if e.Late {
			line += " late"
		}
		got = append(got, line)
	}
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Fatalf("events %q\nwant   %q", got, want)
	}
}

// Promise: The outbox has every change.
func TestSeckillOutboxHasEveryChange(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{})
		openSale(t, g, "tv", Sale{Stock: 5, PerBuyer: 5, Hold: time.Minute})
		buy := func(id string, quantity int64) core.Decision {
			t.Helper()
			d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv", ID: id, Cost: quantity})
			guardtest.WantReason(t, d, core.ReasonOK)
			return d
		}
		paid, failed := buy("paid", 1), buy("failed", 2)
		buy("over", 1)
		guardtest.Settle(t, g, paid, core.Commit)
		guardtest.Settle(t, g, failed, core.Rollback)
		if _, err := g.Restock(t.Context(), "tv", "more", 3); err != nil {
			t.Fatal(err)
		}
		clock.Advance(time.Minute)
		late := buy("late", 1)
		if n, err := g.Sweep(t.Context(), "tv"); n != 1 || err != nil {
			t.Fatalf("Sweep: %d, %v", n, err)
		}
		clock.Advance(time.Minute)
		all := buy("all", 4) // takes the late one back: ann would have more than one buyer may have
		guardtest.Settle(t, g, all, core.Rollback)
		guardtest.Settle(t, g, late, core.Commit)
		for range 2 {
			if err := g.Close(t.Context(), "tv"); err != nil {
				t.Fatal(err)
			}
		}
		wantEvents(t, g, "tv",
			"opened   5", "held paid ann 1", "held failed ann 2", "held over ann 1", "sold paid ann 1",
			"cancelled failed ann 2",
			"restocked more  3", "held late ann 1", "expired over ann 1", "expired late ann 1", "held all ann 4",
			"cancelled all ann 4", "sold late ann 1 late", "closed   0")
		wantStatus(t, g, "tv", 6, 0, 2)

		held, err := g.Events(t.Context(), "tv", "", 2)
		if err != nil || len(held) != 2 || !held[1].Ends.Equal(clock.Now().Add(-time.Minute)) {
			t.Errorf("%+v, %v: want a hold that ended a minute ago", held, err)
		}
		wantSameTTL(t, b, g, "tv")
	})
}

// wantSameTTL wants all keys of a sale to have the same TTL.
func wantSameTTL(t *testing.T, b redistest.Backend, g *Guard, item string) {
	t.Helper()
	for _, key := range g.saleKeys(item) {
		if ttl, err := b.Client.PTTL(t.Context(), key).Result(); err != nil || ttl != -2 &&
			ttl < g.options.Keep-time.Minute {
			t.Errorf("%s lives on for %v (%v), want %v", key, ttl, err, g.options.Keep)
		}
	}
}

// TestSeckillWhatChangesNothingHasNoEvent: refusals, replays, and rollbacks of a hold that another call
// shares.
func TestSeckillWhatChangesNothingHasNoEvent(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "s", Options{})
		sale := Sale{Stock: 1}
		openSale(t, g, "tv", sale)
		if _, err := g.Open(t.Context(), "tv", sale); err != nil {
			t.Fatal(err)
		}
		a := core.Attempt{Actor: "ann", Resource: "tv", ID: "op"}
		first, second := guardtest.Check(t, g, a), guardtest.Check(t, g, a)
		guardtest.Settle(t, g, second, core.Rollback)
		guardtest.Settle(t, g, first, core.Commit)
		guardtest.Settle(t, g, first, core.Commit)
		guardtest.Settle(t, g, first, core.Rollback)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv"}),
			core.ReasonDuplicate)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "tv", ID: "other"}),
			core.ReasonSoldOut)
		for _, end := range []func(context.Context, core.Attempt) (core.Decision, error){g.Confirm, g.Cancel} {
			if _, err := end(t.Context(), core.Attempt{Actor: "ann", Resource: "tv", ID: "nobody's"}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := g.Sweep(t.Context(), "tv"); err != nil {
			t.Fatal(err)
		}
		wantEvents(t, g, "tv", "opened   1", "held op ann 1", "sold op ann 1")
		wantEvents(t, g, "nothing")
	})
}

// TestSeckillEventsInPieces continues from each position.
func TestSeckillEventsInPieces(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "s", Options{})
		openSale(t, g, "tv", Sale{Stock: 100})
		for i := range 10 {
			guardtest.Check(t, g, core.Attempt{Actor: fmt.Sprint(i), Resource: "tv"})
		}
		var buyers string
		for position := ""; ; {
			events, err := g.Events(t.Context(), "tv", position, 3)
			if err != nil {
				t.Fatal(err)
			}
			if len(events) == 0 {
				break
			}
			for _, e := range events {
				buyers += e.Buyer
				position = e.Position
			}
		}
		if buyers != "0123456789" {
			t.Errorf("held by %q", buyers)
		}
		for _, count := range []int{0, -1, 1001} {
			if _, err := g.Events(t.Context(), "tv", "", count); !guardtest.IsInvalid(err) {
				t.Errorf("%d events: %v", count, err)
			}
		}
		if _, err := g.Events(t.Context(), "tv", "no position", 1); err == nil {
			t.Error("a position that is none is taken")
		}
	})
}

func TestSeckillEventsHostileText(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "s", Options{})
		for _, text := range guardtest.Hostile {
			openSale(t, g, text, Sale{Stock: 1})
			guardtest.Check(t, g, core.Attempt{Actor: text, Resource: text, ID: text})
			want := text
			if stored := script.Encode(text); stored[0] == '#' {
				want = stored // too long to be kept as it is
			}
			events, err := g.Events(t.Context(), text, "", 1000)
			if err != nil || len(events) != 2 || events[1].Buyer != want || events[1].ID != want ||
				events[1].Key != script.Encode(text) || len(events[1].Key) > script.MaxPlain {
				t.Errorf("%.40q: %+v, %v", text, events, err)
			}
		}
	})
}

// TestSeckillEventsOfAnIDThatLooksLikeTheShortNameOfALongOne: they are two reservations, which a consumer
// must distinguish.
func TestSeckillEventsOfAnIDThatLooksLikeTheShortNameOfALongOne(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "s", Options{})
		openSale(t, g, "tv", Sale{Stock: 2})
		long := strings.Repeat("long ", 20)
		for buyer, id := range map[string]string{"ann": long, "bob": script.Encode(long)} {
			guardtest.Settle(t, g, guardtest.Check(t, g, core.Attempt{Actor: buyer, Resource: "tv", ID: id}),
				core.Commit)
		}
		events, err := g.Events(t.Context(), "tv", "", 10)
		if err != nil || len(events) != 5 {
			t.Fatalf("%+v, %v", events, err)
		}
		buyers := map[string]string{}
		for _, e := range events[1:] {
			if buyer, known := buyers[e.Key]; known && buyer != e.Buyer {
				t.Errorf("%s and %s have the key %s", buyer, e.Buyer, e.Key)
			}
			buyers[e.Key] = e.Buyer
		}
		if len(buyers) != 2 {
			t.Errorf("keys %v: want one for each reservation", buyers)
		}
	})
}

// TestSeckillOutboxThatWasDeletedComesBackWithATTL: no path leaves a key without a TTL.
func TestSeckillOutboxThatWasDeletedComesBackWithATTL(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{})
		for name, change := range map[string]func(item string, d core.Decision){
			"confirm": func(_ string, d core.Decision) { guardtest.Settle(t, g, d, core.Commit) },
			"cancel":  func(_ string, d core.Decision) { guardtest.Settle(t, g, d, core.Rollback) },
			"sweep": func(item string, _ core.Decision) {
				clock.Advance(time.Hour)
				g.Sweep(t.Context(), item)
			},
			"a refused reserve": func(item string, _ core.Decision) {
				clock.Advance(time.Hour)
				guardtest.WantReason(t, guardtest.Check(t, g,
					core.Attempt{Actor: "ann", Resource: item, Cost: 2, ID: "2"}), core.ReasonDuplicate)
			},
			"a reserve that finds its own hold over": func(item string, d core.Decision) {
				clock.Advance(25 * time.Hour)
				guardtest.WantReason(t, guardtest.Check(t, g, d.Attempt), core.ReasonClosed)
			},
			"restock": func(item string, _ core.Decision) { g.Restock(t.Context(), item, "r", 1) },
			"close":   func(item string, _ core.Decision) { g.Close(t.Context(), item) },
		} {
			openSale(t, g, name, Sale{Stock: 5, Hold: time.Minute, Closes: clock.Now().Add(24 * time.Hour)})
			d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: name})
			b.Client.Del(t.Context(), g.OutboxKey(name))
			change(name, d)
			if events, err := g.Events(t.Context(), name, "", 10); err != nil || len(events) != 1 {
				t.Errorf("%s: %+v, %v: want one event", name, events, err)
			}
			wantSameTTL(t, b, g, name)
		}
	})
}

func TestSeckillWithoutOutbox(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{NoOutbox: true})
		openSale(t, g, "tv", Sale{Stock: 5, Hold: time.Minute})
		guardtest.Settle(t, g, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv"}), core.Commit)
		guardtest.Settle(t, g, guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "tv"}), core.Rollback)
		guardtest.Check(t, g, core.Attempt{Actor: "cid", Resource: "tv"})
		wantStatus(t, g, "tv", 3, 1, 1)
		clock.Advance(time.Minute)
		if n, err := g.Sweep(t.Context(), "tv"); n != 1 || err != nil {
			t.Errorf("Sweep: %d, %v", n, err)
		}
		if s, err := g.Restock(t.Context(), "tv", "r", 1); err != nil || s != saleStatus(6, 5, 0, 1, s.Epoch) {
			t.Errorf("Restock: %+v, %v", s, err)
		}
		if err := g.Close(t.Context(), "tv"); err != nil {
			t.Error(err)
		}
		wantStatus(t, g, "tv", 5, 0, 1)
		wantEvents(t, g, "tv")
	})
}

func TestParseEventRefusesOtherMessages(t *testing.T) {
	for _, values := range []map[string]any{
		nil, {"id": "a"}, {"event": "held", "quantity": "many"}, {"event": "held", "quantity": "1", "ends": "x"},
		{"event": 7},
	} {
		if e, err := ParseEvent(redis.XMessage{ID: "1-1", Values: values}); err == nil {
			t.Errorf("%v: %+v", values, e)
		}
	}
}
