package core_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

// expecting makes n calls in a Round, each of which expects to be allowed and counts 1.
func (c *crowd) expecting(t *testing.T, n int) {
	t.Helper()
	var round core.Round
	round.Make(t.Context(), n, func(ctx context.Context, i int) bool {
		if !core.Expect(ctx, func() bool { return true }) {
			t.Error("a call that expects to be allowed must wait")
		}
		if _, err := c.run(ctx, countOnce, 1, "round"); err != nil {
			t.Errorf("call %d: %v", i, err)
		}
		return true
	})
}

// TestCallsOfARoundGoOutTogether: by themselves if the way is free, else with others that wait.
func TestCallsOfARoundGoOutTogether(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		for _, obeys := range []bool{true, false} {
			c := newCrowd(t, b)
			c.e.SetObeysDeadline(obeys)
			before := c.sum(t)
			c.expecting(t, 3)
			if got := c.lengths(); !slices.Equal(got, []int{3}) {
				t.Errorf("pipelines of %v, want 3 commands in one", got)
			}
			c.fill(t)
			for range 2 {
				c.all.Go(func() { c.expecting(t, 4) })
			}
			redistest.Eventually(t, 10*time.Second, func() bool { return c.e.WaitingCalls() == 8 }, "two rounds wait")
			c.open()
			if got := c.lengths(); !slices.Equal(got, []int{3, 8}) {
				t.Errorf("pipelines of %v, want 3 and 8 commands", got)
			}
			if got := c.sum(t) - before; got != 11 {
				t.Errorf("%d calls have run, want 11", got)
			}
		}
	})
}

// TestARoundEndsWithTheCallThatRefuses: later ones are made only if they were made by then.
func TestARoundEndsWithTheCallThatRefuses(t *testing.T) {
	b := redistest.Mini(t)
	c := newCrowd(t, b)
	for _, want := range []struct {
		name     string
		expects  []bool
		refuses  int
		calls    []int // in the order of their begin
		made     int
		together []int
	}{
		{"nobody refuses", []bool{true, true, true, true}, -1, []int{0, 1, 2, 3}, 4, []int{4}},
		{"the first refuses", []bool{true, true, true, true}, 0, []int{0, 1, 2, 3}, 4, []int{4}},
		{"the first refuses as expected", []bool{false, true, true, true}, 0, []int{0}, 1, nil},
		{"the first does not expect to allow, and does", []bool{false, true, true, true}, -1, []int{0, 1, 2, 3}, 4,
			[]int{3}},
		{"the third wants to be asked later", []bool{true, true, false, true}, -1, []int{0, 1, 2}, 2, []int{2}},
	} {
		c.pipes = nil
		var round core.Round
		var calls []int
		made := round.Make(t.Context(), 4, func(ctx context.Context, i int) bool {
			calls = append(calls, i)
			if !core.Expect(ctx, func() bool { return want.expects[i] }) {
				return false
			}
			if _, err := c.run(ctx, countOnce, 1, "round"); err != nil {
				t.Error(err)
			}
			return i != want.refuses
		})
		if !slices.Equal(calls, want.calls) || made != want.made || !slices.Equal(c.lengths(), want.together) {
			t.Errorf("%s: calls %v, %d made, pipelines of %v", want.name, calls, made, c.lengths())
		}
	}
}

// TestHotKeysInRoundsDoNotWaitForEachOther: calls of a key that wait for those under way must not keep from
// going out what others wait for. Nothing here is sent because it has waited for too long.
func TestHotKeysInRoundsDoNotWaitForEachOther(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		c := newCrowd(t, b, core.WithRefusalMemory(0))
		guards := []*limit.SlidingWindow{
			limit.NewSlidingWindow(c.e, "a", limit.PerHour(5000)),
			limit.NewSlidingWindow(c.e, "b", limit.PerHour(5000)),
			limit.NewSlidingWindow(c.e, "c", limit.PerHour(5000)),
		}
		const callers, each = 16, 10
		var all sync.WaitGroup
		for n := range callers {
			all.Go(func() {
				for k := range each {
					var round core.Round
					round.Make(t.Context(), 3, func(ctx context.Context, i int) bool {
						i = (i*(1+n%2) + n + k) % 3 // in all orders
						d, err := guards[i].Check(ctx, hot)
						if err != nil || !d.Allowed {
							t.Errorf("%+v, %v", d, err)
						}
						return err == nil
					})
				}
			})
		}
		all.Wait()
		for _, g := range guards {
			wantLeft(t, g, 5000-callers*each)
		}
	})
}

// TestAGuardMayUseTheContextOfARoundInSeveralGoroutines: also when its call has ended.
func TestAGuardMayUseTheContextOfARoundInSeveralGoroutines(t *testing.T) {
	b := redistest.Mini(t)
	c := newCrowd(t, b)
	before := c.sum(t)
	var late sync.WaitGroup
	const rounds = 30
	for range rounds {
		var round core.Round
		made := round.Make(t.Context(), 3, func(ctx context.Context, _ int) bool {
			core.Expect(ctx, func() bool { return true })
			count := func() {
				if _, err := c.run(ctx, countOnce, 1, "goroutine"); err != nil {
					t.Error(err)
				}
			}
			var own sync.WaitGroup
			own.Go(count)
			own.Go(count)
			late.Go(count)
			count()
			own.Wait()
			return true
		})
		if made != 3 {
			t.Errorf("%d calls were made", made)
		}
	}
	late.Wait()
	if got := c.sum(t) - before; got != rounds*3*4 {
		t.Errorf("%d calls have run, want %d", got, rounds*3*4)
	}
}

// TestALostRoundIsOneFailure, however many calls it had.
func TestALostRoundIsOneFailure(t *testing.T) {
	b := redistest.Mini(t)
	faults := redistest.NewFaults(t)
	c := newCrowdOver(t, b, b.NewClientWith(t, faults), core.WithBreaker(core.BreakerOptions{Failures: 2}))
	faults.SwallowReply("lost")
	var round core.Round
	round.Make(t.Context(), 5, func(ctx context.Context, _ int) bool {
		core.Expect(ctx, func() bool { return true })
		_, err := c.run(ctx, countOnce, 1, "lost")
		if err == nil || errors.Is(err, core.ErrBreakerOpen) {
			t.Errorf("%v", err)
		}
		return true
	})
	if got := c.lengths(); !slices.Equal(got, []int{5}) || len(c.e.OpenBreakers()) != 0 {
		t.Errorf("pipelines of %v, %d open breakers", got, len(c.e.OpenBreakers()))
	}
}

// TestAPanicInARoundWaitsForTheCallsInFront: what these took can be given back then.
func TestAPanicInARoundWaitsForTheCallsInFront(t *testing.T) {
	b := redistest.Mini(t)
	c := newCrowd(t, b)
	var ended []int
	func() {
		defer func() {
			if value := recover(); value != "broken" {
				t.Errorf("panic %v", value)
			}
		}()
		var round core.Round
		round.Make(t.Context(), 4, func(ctx context.Context, i int) bool {
			core.Expect(ctx, func() bool { return true })
			if i == 2 {
				panic("broken")
			}
			_, err := c.run(ctx, countOnce, 1, "round")
			if err == nil {
				ended = append(ended, i)
			}
			return true
		})
	}()
	if !slices.Equal(ended, []int{1, 0}) {
		t.Errorf("calls %v have ended", ended)
	}
}

// TestEventsOfARoundAreToldInTheOrderOfItsCalls, or not at all, but for errors.
func TestEventsOfARoundAreToldInTheOrderOfItsCalls(t *testing.T) {
	b := redistest.Mini(t)
	seen := &guardtest.Recorder{}
	c := newCrowd(t, b, core.WithObserver(seen))
	failed := errors.New("failed")
	var bases []core.Base
	for _, name := range []string{"a", "b", "c", "d"} {
		bases = append(bases, c.e.Register("own", name))
	}
	var round core.Round
	round.Make(t.Context(), 4, func(ctx context.Context, i int) bool {
		core.Expect(ctx, func() bool { return true })
		_ = bases[i].Call(ctx, "note", core.Attempt{}, func() error {
			_, err := c.run(ctx, countOnce, 1, "round")
			if i == 3 {
				err = failed
			}
			return err
		})
		return true
	})
	if len(seen.Events) != 0 {
		t.Errorf("events before their turn: %+v", seen.Events)
	}
	for i := range 2 {
		round.Tell(i)
		round.Tell(i)
	}
	round.Drop(2)
	round.Drop(3)
	var got []string
	for _, e := range seen.Events {
		got = append(got, e.Guard)
	}
	if !slices.Equal(got, []string{"a", "b", "d"}) || !errors.Is(seen.Events[2].Err, failed) {
		t.Errorf("events of %v", got)
	}
}
