package limit

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

// release returns a guard as another process has it, which a deployment has started.
func release(b redistest.Backend, clock *guardtest.Clock, k kind, limit Limit, more ...Limit) rateLimit {
	e := guardtest.NewEngine(b, guardtest.WithClock(clock), core.WithRefusalMemory(0))
	return k.make(e, "w", limit, more...)
}

// TestAChangedWindowOpensNoFreeWindow: of 12 in the new window those are left that the old one has not
// counted.
func TestAChangedWindowOpensNoFreeWindow(t *testing.T) {
	eachKindAndParts(t, func(t *testing.T, b redistest.Backend, k kind) {
		clock := guardtest.NewClock()
		for i, windows := range [][2]time.Duration{
			{time.Minute, time.Hour}, {time.Hour, time.Minute}, {time.Hour, 30 * 24 * time.Hour},
		} {
			a := core.Attempt{Actor: string(rune('a' + i))}
			clock.Advance(2 * time.Hour) // else the windows of the former round are passed along
			if n, _ := drain(t, release(b, clock, k, Per(10, windows[0])), a); n != 10 {
				t.Fatalf("%d of ten were admitted", n)
			}
			clock.Advance(time.Second)
			want := 2
			if k.name == "FixedWindow" && windows[1] < windows[0] {
				want = 12 // it does not know when the units were taken
			}
			n, refused := drain(t, release(b, clock, k, Per(12, windows[1])), a)
			if n != want || refused.RetryAfter > windows[1]+windows[1]/50 {
				t.Errorf("%v: %d of 12 were admitted, want %d; then %+v", windows, n, want, refused)
			}
		}
	})
}

// TestBothReleasesCountDuringADeployment: the next release counts what both admit, and the former one, once
// it has heard of the other, what that admits.
func TestBothReleasesCountDuringADeployment(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		a := core.Attempt{Actor: "ann"}
		left := func(g rateLimit, want int64) {
			t.Helper()
			clock.Advance(time.Second)
			if d := guardtest.Check(t, g, a); !d.Allowed || d.Remaining != want {
				t.Errorf("%+v, want %d remaining", d, want)
			}
		}
		old := release(b, clock, kinds[0], PerHour(20))
		left(old, 19)
		next := release(b, clock, kinds[0], Per(20, 2*time.Hour))
		left(next, 18)
		left(old, 18) // it has not heard of the other one yet
		left(next, 16)
		clock.Advance(announceEvery)
		left(old, 16) // what was admitted since its own last unit
		left(next, 14)
		left(release(b, clock, kinds[0], PerHour(20)), 14) // back to the former release
		left(next, 12)
	})
}

// TestFormerWindowsArePassedAlongUntilTheyAreOver, and then a check is what it was before.
func TestFormerWindowsArePassedAlongUntilTheyAreOver(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		a := core.Attempt{Actor: "ann"}
		along := func(g rateLimit, want int) {
			t.Helper()
			guardtest.Check(t, g, a)
			l := limiterOf(g)
			if set := l.withFormer(t.Context(), l.limits); len(set.windows)-len(set.limits) != want {
				t.Errorf("%v: the windows are %v, want %d of others", clock.Now(), set.windows, want)
			}
		}
		along(release(b, clock, kinds[0], PerMinute(10), PerHour(100)), 0)
		g := release(b, clock, kinds[0], Per(100, 2*time.Hour), PerHour(100))
		along(g, 1)
		clock.Advance(announcedFor)
		along(g, 1)
		clock.Advance(time.Minute)
		along(g, 0)
		along(release(b, clock, kinds[0], PerDay(100)), 2)
		clock.Advance(-48 * time.Hour)
		along(g, 1)
	})
}

// TestResetReachesFormerWindows: else the next attempt would take their units over again.
func TestResetReachesFormerWindows(t *testing.T) {
	eachKind(t, func(t *testing.T, b redistest.Backend, k kind) {
		clock := guardtest.NewClock()
		a := core.Attempt{Actor: "ann"}
		drain(t, release(b, clock, k, PerMinute(10)), a)
		g := release(b, clock, k, PerHour(10))
		if err := g.Reset(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if n, _ := drain(t, g, a); n != 10 {
			t.Errorf("%d of ten after a reset", n)
		}
	})
}

// TestOneProcessAsksOnceForFormerWindows, however many attempts come first, and all have the answer.
func TestOneProcessAsksOnceForFormerWindows(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		a := core.Attempt{Actor: "ann"}
		drain(t, release(b, clock, kinds[0], PerMinute(10)), a)
		counting := &guardtest.Counting{Client: b.Client}
		window := func(client core.Client) *SlidingWindow {
			return NewSlidingWindow(core.New(client, core.WithPrefix(b.Prefix), core.WithDeadline(10*time.Second),
				guardtest.WithClock(clock), core.WithRefusalMemory(0)), "w", PerHour(30))
		}
		// Not through the counting client, which is no cluster client: the scripts would be on one server only.
		if err := window(b.Client).Engine().Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		g := window(counting)
		var admitted atomic.Int64
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if d, err := g.Check(t.Context(), a); err != nil {
					t.Error(err)
				} else if d.Allowed {
					admitted.Add(1)
				}
			})
		}
		all.Wait()
		if n := admitted.Load(); n != 20 {
			t.Errorf("%d were admitted beside ten of the former window, want 20 of 30", n)
		}
		if n := counting.Sent.Load(); n != 51 {
			t.Errorf("50 checks sent %d commands, want one more", n)
		}
	})
}

// TestChecksGoOnWithoutAnAnswerAboutFormerWindows, and the next one asks again.
func TestChecksGoOnWithoutAnAnswerAboutFormerWindows(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		a := core.Attempt{Actor: "ann"}
		drain(t, release(b, clock, kinds[0], PerMinute(10)), a)
		var events guardtest.Recorder
		g := NewSlidingWindow(guardtest.NewEngine(b, guardtest.WithClock(clock), core.WithObserver(&events)), "w",
			PerHour(12))
		key := g.windowsKey()
		announced := b.Client.Get(t.Context(), key).Val()
		b.Client.Del(t.Context(), key)
		b.Client.RPush(t.Context(), key, "not a string")
		b.Client.Expire(t.Context(), key, time.Minute)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "bob"}), core.ReasonOK)
		if e := events.Events[0]; e.Op != "windows" || e.Err == nil {
			t.Errorf("%+v: want the error of the call that failed", e)
		}
		b.Client.Set(t.Context(), key, announced, time.Minute)
		if n, _ := drain(t, g, a); n != 2 {
			t.Errorf("%d of 12 were admitted, want 2", n)
		}
	})
}

// TestALookAnnouncesNothing: a process that only looks at an actor, or resets one, may have been given another
// window than the processes that decide. Peek announced it to them.
func TestALookAnnouncesNothing(t *testing.T) {
	eachKindAndParts(t, func(t *testing.T, b redistest.Backend, k kind) {
		clock := guardtest.NewClock()
		a := core.Attempt{Actor: "ann"}
		former := release(b, clock, k, Per(10, time.Hour))
		if n, _ := drain(t, former, a); n != 10 {
			t.Fatalf("%d of ten were admitted", n)
		}
		key := limiterOf(former).windowsKey()
		before := b.Client.Get(t.Context(), key).Val()
		clock.Advance(time.Second)
		looks := release(b, clock, k, Per(12, 2*time.Hour))
		if d := peek(t, looks, a); d.Remaining != 2 {
			t.Errorf("%+v, want the ten of the former window to count", d)
		}
		if err := looks.Reset(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if after := b.Client.Get(t.Context(), key).Val(); after != before || before == "" {
			t.Errorf("%q is announced, before it was %q", after, before)
		}
		if d := peek(t, looks, a); d.Remaining != 12 {
			t.Errorf("after the reset: %+v", d)
		}
	})
}
