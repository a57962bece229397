package seckill

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// Promise: Restock counts once per ID.
func TestSeckillRestock(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "s", Options{})
		openSale(t, g, "tv", Sale{Stock: 3, PerBuyer: 2})
		guardtest.Settle(t, g, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv", ID: "1"}),
			core.Commit)
		guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "tv", ID: "2"})
		opened, err := g.Status(t.Context(), "tv")
		if err != nil {
			t.Fatal(err)
		}
		epoch := opened.Epoch
		for _, step := range []struct {
			id    string
			units int64
			want  Status
			err   error
		}{
			{"1", 4, saleStatus(7, 5, 1, 1, epoch), nil}, // a reservation has the same ID, which does not matter
			{"1", 4, saleStatus(7, 5, 1, 1, epoch), nil},
			{"1", 5, saleStatus(7, 5, 1, 1, epoch), core.ErrInvalid},
			{"2", -6, saleStatus(7, 5, 1, 1, epoch), ErrTooFewLeft},
			{"2", -5, saleStatus(2, 0, 1, 1, epoch), nil}, // what was refused may be tried again with other units
			{"2", -5, saleStatus(2, 0, 1, 1, epoch), nil},
			{"3", -1, saleStatus(2, 0, 1, 1, epoch), ErrTooFewLeft},
			{"3", core.MaxAmount - 1, saleStatus(2, 0, 1, 1, epoch), core.ErrInvalid},
			{"3", core.MaxAmount - 2, saleStatus(core.MaxAmount, core.MaxAmount-2, 1, 1, epoch), nil},
			{"4", 1, saleStatus(core.MaxAmount, core.MaxAmount-2, 1, 1, epoch), core.ErrInvalid},
			{"4", core.MaxAmount, saleStatus(core.MaxAmount, core.MaxAmount-2, 1, 1, epoch), core.ErrInvalid},
			{"4", -core.MaxAmount, saleStatus(core.MaxAmount, core.MaxAmount-2, 1, 1, epoch), ErrTooFewLeft},
			{"4", 0, Status{}, core.ErrInvalid},
			{"4", core.MaxAmount + 1, Status{}, core.ErrInvalid},
			{"4", -core.MaxAmount - 1, Status{}, core.ErrInvalid},
			{"", 1, Status{}, core.ErrInvalid},
		} {
			got, err := g.Restock(t.Context(), "tv", step.id, step.units)
			if got != step.want || !errors.Is(err, step.err) {
				t.Errorf("restock %q by %d: %+v, %v; want %+v, %v", step.id, step.units, got, err, step.want, step.err)
			}
		}
		wantStatus(t, g, "tv", core.MaxAmount-2, 1, 1)
		if _, err := g.Restock(t.Context(), "pc", "1", 1); !errors.Is(err, ErrNoSale) {
			t.Errorf("an unknown sale: %v", err)
		}
	})
}

func TestSeckillRestockWithALostReplyCountsOnce(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		e := guardtest.NewEngine(b)
		g := New(e, "s", Options{})
		openSale(t, g, "tv", Sale{Stock: 5})
		if err := e.Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, units := range []int64{3, -2} {
			faults.SwallowReply("evalsha")
			if s, err := g.Restock(t.Context(), "tv", string(rune('a'+i)), units); err != nil || s.Left != s.Stock {
				t.Fatalf("%+v, %v", s, err)
			}
		}
		faults.SwallowReply("evalsha")
		if err := g.Close(t.Context(), "tv"); err != nil {
			t.Fatal(err)
		}
		if faults.Swallowed() != 3 {
			t.Errorf("%d replies were lost, want 3", faults.Swallowed())
		}
		wantStatus(t, g, "tv", 6, 0, 0)
		wantEvents(t, g, "tv", "opened   5", "restocked a  3", "restocked b  -2", "closed   0")
	})
}

func TestSeckillClose(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{})
		for name, sale := range map[string]Sale{
			"without an end":    {Stock: 3},
			"before its end":    {Stock: 3, Closes: clock.Now().Add(time.Hour)},
			"before it expires": {Stock: 3, Closes: clock.Now().Add(100 * 24 * time.Hour)},
		} {
			openSale(t, g, name, sale)
			ann := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: name})
			for range 2 {
				if err := g.Close(t.Context(), name); err != nil {
					t.Fatal(err)
				}
			}
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: name}),
				core.ReasonClosed)
			guardtest.Settle(t, g, ann, core.Commit) // in time
			wantStatus(t, g, name, 2, 0, 1)
			wantSameTTL(t, b, g, name)
		}

		openSale(t, g, "before it opens", Sale{Stock: 3, Opens: clock.Now().Add(time.Hour)})
		if err := g.Close(t.Context(), "before it opens"); err != nil {
			t.Fatal(err)
		}
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "before it opens"}),
			core.ReasonClosed)
		clock.Advance(2 * time.Hour)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "before it opens"}),
			core.ReasonClosed)

		openSale(t, g, "closed by itself", Sale{Stock: 3, Closes: clock.Now().Add(time.Hour)})
		clock.Advance(2 * time.Hour)
		if err := g.Close(t.Context(), "closed by itself"); err != nil {
			t.Fatal(err)
		}
		wantEvents(t, g, "closed by itself", "opened   3")
		if err := g.Close(t.Context(), "unknown"); !errors.Is(err, ErrNoSale) {
			t.Errorf("an unknown sale: %v", err)
		}
	})
}

// TestSeckillSweepEvery: units of buyers whose process died go back without further attempts.
func TestSeckillSweepEvery(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		dead := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{})
		for _, item := range []string{"tv", "pc"} {
			openSale(t, dead, item, Sale{Stock: 300, PerBuyer: 300, Hold: time.Minute})
			for range 250 { // more than one call takes back
				guardtest.Check(t, dead, core.Attempt{Actor: "ann", Resource: item})
			}
		}
		clock.Advance(time.Minute)
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- g.SweepEvery(ctx, time.Millisecond, func() []string { return []string{"tv", "unknown", "pc"} })
		}()
		for _, item := range []string{"tv", "pc"} {
			redistest.Eventually(t, time.Minute, func() bool {
				s, err := g.Status(t.Context(), item)
				return err == nil && s.Left == 300
			}, "all holds of "+item+" have gone back")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("SweepEvery: %v", err)
		}
		wantStatus(t, g, "tv", 300, 0, 0)
	})
}

// sweepTimes answers each call with an error or with nothing to sweep, and records its time.
type sweepTimes struct {
	mu    sync.Mutex
	begun time.Time
	times []time.Duration
}

func (s *sweepTimes) Process(_ context.Context, cmd redis.Cmder) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.times = append(s.times, time.Since(s.begun))
	if len(s.times)%2 == 0 {
		cmd.SetErr(errors.New("down"))
		return cmd.Err()
	}
	cmd.(*redis.Cmd).SetVal([]any{"ok", int64(0)})
	return nil
}

// TestSeckillSweepEverySpreadsItsCalls: it also goes on after errors, which the observer receives.
func TestSeckillSweepEverySpreadsItsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb, h := &sweepTimes{begun: time.Now()}, &guardtest.Recorder{}
		g := New(core.New(rdb, core.WithObserver(h)), "s", Options{})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		rounds := 0
		err := g.SweepEvery(ctx, time.Minute, func() []string {
			if rounds++; rounds%2 == 0 {
				return nil // nothing is on sale for a minute
			}
			return []string{"a", "b", "c"}
		})
		if err != nil {
			t.Errorf("SweepEvery: %v", err)
		}
		var pauses []time.Duration
		for i := 1; i < len(rdb.times); i++ {
			pauses = append(pauses, rdb.times[i]-rdb.times[i-1])
		}
		if first := rdb.times[0]; first >= time.Minute {
			t.Errorf("the first sweep came after %v", first)
		}
		third := 20 * time.Second
		if want := []time.Duration{third, third, third + time.Minute}; len(pauses) < 12 ||
			!slices.Equal(pauses[:3], want) {
			t.Errorf("sweeps came at %v", rdb.times)
		}
		failed := 0
		for _, e := range h.Events {
			if e.Op == "sweep" && e.Err != nil {
				failed++
			}
		}
		if failed != len(rdb.times)/2 {
			t.Errorf("the observer heard of %d errors, want %d", failed, len(rdb.times)/2)
		}
		for _, wrong := range []error{
			g.SweepEvery(ctx, 0, func() []string { return nil }), g.SweepEvery(ctx, time.Minute, nil),
		} {
			if wrong == nil {
				t.Error("a mistake in the arguments is not an error")
			}
		}
	})
}
