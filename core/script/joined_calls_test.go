package script_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/lua"
)

var joinedScript = script.New("joined", lua.Source("limit/sliding_window"), script.AtMostOnce)

var hot = core.Attempt{Actor: "hot"}

// hold has two checks of a key under way, so that others have to wait.
func (c *crowd) hold(t *testing.T, g *limit.SlidingWindow) {
	t.Helper()
	// The server does not know the script yet.
	if _, err := g.Check(t.Context(), core.Attempt{Actor: "first"}); err != nil {
		t.Fatal(err)
	}
	c.held.Store(0)
	c.before = c.under.Wait // they are decided first
	c.holds.Store(true)
	for range 2 {
		c.under.Add(1)
		c.all.Go(func() {
			defer c.under.Done()
			if d, err := g.Check(t.Context(), hot); err != nil || !d.Allowed {
				t.Errorf("a check that was held: %+v, %v", d, err)
			}
		})
	}
	redistest.Eventually(t, time.Minute, func() bool { return c.held.Load() == 2 },
		"two checks are under way")
}

// wantLeft wants the hot key to have units left.
func wantLeft(t *testing.T, g *limit.SlidingWindow, want int64) {
	t.Helper()
	d, err := g.Peek(t.Context(), hot)
	if err != nil || d.Remaining != want {
		t.Errorf("%d units are left (%v), want %d", d.Remaining, err, want)
	}
}

// TestChecksOfOneKeyAreDecidedTogether: by one run of a script, in the order of their arrival, and each has
// its own answer and its own units to give back.
func TestChecksOfOneKeyAreDecidedTogether(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		c := newCrowd(t, b, core.WithRefusalMemory(0))
		g := limit.NewSlidingWindow(c.e, "w", limit.PerHour(50))
		c.hold(t, g)
		var mu sync.Mutex
		var allowed []core.Decision
		var left []int64
		c.wait(t, 100, func(int) {
			d, err := g.Check(t.Context(), hot)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if d.Allowed {
				allowed, left = append(allowed, d), append(left, d.Remaining)
			} else if d.Reason != core.ReasonLimited || d.RetryAfter <= 0 || d.Limit != 50 {
				t.Errorf("%+v", d)
			}
		})
		before := c.commands.Load()
		c.open()
		if got := c.commands.Load() - before; got != 3 {
			t.Errorf("%d scripts ran for the two under way and those that waited, want 3", got)
		}
		slices.Sort(left)
		for i, n := range left {
			if n != int64(i) {
				t.Fatalf("units left after each check: %v", left)
			}
		}
		if len(allowed) != 48 {
			t.Errorf("%d of the checks were allowed, want 48", len(allowed))
		}
		wantLeft(t, g, 0)
		for range 2 { // each once
			for _, d := range allowed[:30] {
				guardtest.Settle(t, g, d, core.Rollback)
			}
		}
		wantLeft(t, g, 30)
	})
}

// TestKeysWithoutCallsUnderWayAreForgotten, however many there were.
func TestKeysWithoutCallsUnderWayAreForgotten(t *testing.T) {
	b := redistest.Mini(t)
	e := core.New(b.Client, core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute))
	g := limit.NewSlidingWindow(e, "w", limit.PerHour(1000))
	var all sync.WaitGroup
	for i := range 100 {
		for range 4 {
			all.Go(func() {
				if _, err := g.Check(t.Context(), core.Attempt{Actor: strconv.Itoa(i)}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	redistest.Eventually(t, time.Minute, func() bool { return e.Joins() == 0 }, "no key is kept")
}

// TestCostsThatDoNotFitLeaveRoomForSmallerOnes, as they do one after the other.
func TestCostsThatDoNotFitLeaveRoomForSmallerOnes(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		c := newCrowd(t, b, core.WithRefusalMemory(0))
		g := limit.NewSlidingWindow(c.e, "w", limit.PerHour(12))
		c.hold(t, g)
		costs := []int64{4, 7, 3, 4, 3, 1}
		want := []bool{true, false, true, false, true, false}
		var got [6]core.Decision
		for i, cost := range costs {
			c.wait(t, 1, func(int) {
				var err error
				a := hot
				a.Cost = cost
				if got[i], err = g.Check(t.Context(), a); err != nil {
					t.Error(err)
				}
			})
		}
		c.open()
		for i, d := range got {
			if d.Allowed != want[i] {
				t.Errorf("cost %d: %+v, want allowed %t", costs[i], d, want[i])
			}
		}
		wantLeft(t, g, 0)
	})
}

// TestACheckThatLeavesTheWaitTakesNothing, and one that leaves its run may have taken its unit; the others
// have their answers.
func TestACheckThatLeavesTheWaitTakesNothing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		c := newCrowd(t, b)
		g := limit.NewSlidingWindow(c.e, "w", limit.PerHour(50))
		c.hold(t, g)
		ctx, cancel := context.WithCancel(t.Context())
		var left sync.WaitGroup
		left.Add(1)
		c.wait(t, 1, func(int) {
			defer left.Done()
			if _, err := g.Check(ctx, hot); !errors.Is(err, context.Canceled) ||
				!strings.Contains(err.Error(), "sliding_window: ") {
				t.Errorf("%v, want context.Canceled", err)
			}
		})
		c.wait(t, 3, func(int) {
			if _, err := g.Check(t.Context(), hot); err != nil {
				t.Error(err)
			}
		})
		cancel()
		left.Wait()
		c.open()
		wantLeft(t, g, 45)
	})
}

func TestACheckHasItsDeadlineWhileOthersGoOn(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		c := newCrowd(t, b)
		g := limit.NewSlidingWindow(c.e, "w", limit.PerHour(50))
		c.hold(t, g)
		c.wait(t, 3, func(int) {
			if _, err := g.Check(t.Context(), hot); err != nil {
				t.Error(err)
			}
		})
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := g.Check(ctx, hot)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v after %v, want context.DeadlineExceeded", err, time.Since(begun))
		}
		c.open()
		wantLeft(t, g, 45)
	})
}

// TestALostReplyOfAJoinedRunIsOneFailure: the checks of the run return an error, and the units may be taken,
// once.
func TestALostReplyOfAJoinedRunIsOneFailure(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		c := newCrowdOver(t, b, b.NewClientWith(t, faults), core.WithBreaker(2, 0))
		g := limit.NewSlidingWindow(c.e, "w", limit.PerHour(50))
		if err := c.e.Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.hold(t, g)
		var failed atomic.Int64
		c.wait(t, 20, func(int) {
			if _, err := g.Check(t.Context(), hot); err != nil {
				failed.Add(1)
				if errors.Is(err, core.ErrBreakerOpen) || !strings.Contains(err.Error(), "redis at ") {
					t.Error(err)
				}
			}
		})
		c.before = sync.OnceFunc(func() {
			c.under.Wait()
			faults.SwallowReply(joinedScript.SHA())
		})
		c.open()
		if failed.Load() != 20 {
			t.Errorf("%d of 20 checks failed", failed.Load())
		}
		redistest.Eventually(t, time.Minute, func() bool {
			_, err := g.Peek(t.Context(), hot)
			return err == nil
		}, "the guard goes on")
		wantLeft(t, g, 28)
	})
}

// TestAJoinedRunThatDecidesNothing leaves each check to the script for all logs: here the log is by parts.
func TestAJoinedRunThatDecidesNothing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		c := newCrowd(t, b, core.WithRefusalMemory(0))
		g := limit.NewSlidingWindow(c.e, "w", limit.PerHour(20))
		parts := limit.NewSlidingWindow(guardtest.NewEngine(b), "w", limit.PerHour(20).WithResolution(60))
		c.hold(t, g)
		var allowed atomic.Int64
		c.wait(t, 30, func(int) {
			d, err := g.Check(t.Context(), hot)
			if err != nil {
				t.Error(err)
			}
			if d.Allowed {
				allowed.Add(1)
			}
		})
		var once sync.Once
		c.before = func() {
			once.Do(func() {
				c.under.Wait()
				guardtest.Check(t, parts, hot)
			})
		}
		c.open()
		if allowed.Load() != 17 {
			t.Errorf("%d checks were allowed, want 17", allowed.Load())
		}
		wantLeft(t, g, 0)
	})
}

// TestChecksUnderDifferentLimitsAreNotJoined: a tier has its own limit over the same units.
func TestChecksUnderDifferentLimitsAreNotJoined(t *testing.T) {
	b := redistest.Mini(t)
	c := newCrowd(t, b, core.WithRefusalMemory(0))
	g := limit.NewSlidingWindowBy(c.e, "w", func(_ context.Context, a core.Attempt) ([]limit.Limit, error) {
		return []limit.Limit{limit.PerHour(a.Cost * 10)}, nil // the cost stands for the tier
	})
	c.hold(t, g)
	c.wait(t, 5, func(int) {
		if d, err := g.Check(t.Context(), hot); err != nil || d.Limit != 10 {
			t.Errorf("%+v, %v", d, err)
		}
	})
	c.wait(t, 1, func(int) {
		a := hot
		a.Cost = 3
		if d, err := g.Check(t.Context(), a); err != nil || d.Limit != 30 {
			t.Errorf("%+v, %v", d, err)
		}
	})
	c.open()
}

// TestWithoutSharedCallsNoCheckWaits for another.
func TestWithoutSharedCallsNoCheckWaits(t *testing.T) {
	b := redistest.Mini(t)
	var sent atomic.Int64
	g := limit.NewSlidingWindow(core.New(counting{b.Client, &sent}, core.WithPrefix(b.Prefix),
		core.WithDeadline(time.Minute), core.WithRefusalMemory(0), core.WithoutSharedCalls()), "w",
		limit.PerHour(100))
	guardtest.Check(t, g, hot)
	sent.Store(0)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if _, err := g.Check(t.Context(), hot); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if sent.Load() != 50 {
		t.Errorf("%d commands for 50 checks", sent.Load())
	}
}

type counting struct {
	script.Client
	sent *atomic.Int64
}

func (c counting) Process(ctx context.Context, cmd redis.Cmder) error {
	c.sent.Add(1)
	return c.Client.Process(ctx, cmd)
}
