package limit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// release returns a guard as another process has it, which a deployment has started.
func release(b redistest.Backend, clock *guardtest.Clock, k kind, limit Limit, more ...Limit) rateLimit {
	e := guardtest.NewEngine(b, guardtest.WithClock(clock), core.WithRefusalMemory(0))
	return k.make(e, "w", limit, more...)
}

// TestAChangedWindowOpensNoFreeWindow: of 12 in the new window those are left that the old one has not
// counted.
func TestAChangedWindowOpensNoFreeWindow(t *testing.T) {
	eachSliding(t, func(t *testing.T, b redistest.Backend, k kind) {
		clock := guardtest.NewClock()
		for i, windows := range [][2]time.Duration{
			{time.Minute, time.Hour}, {time.Hour, time.Minute}, {time.Hour, 30 * 24 * time.Hour},
		} {
			a := core.Attempt{Actor: string(rune('a' + i))}
			if n, _ := drain(t, release(b, clock, k, Per(10, windows[0])), a); n != 10 {
				t.Fatalf("%d of ten were admitted", n)
			}
			clock.Advance(time.Second)
			want := 2
			n, refused := drain(t, release(b, clock, k, Per(12, windows[1])), a)
			if n != want || refused.RetryAfter > windows[1]+max(windows[0], windows[1])/50 {
				t.Errorf("%v: %d of 12 were admitted, want %d; then %+v", windows, n, want, refused)
			}
		}
	})
}

// TestBothReleasesCountDuringADeployment: each counts what both admit.
//
// Promise: Two releases with different limits count together during a deployment.
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
		left(old, 17)
		left(next, 16)
		left(release(b, clock, kinds[0], PerHour(20)), 15) // back to the former release
		left(next, 14)
	})
}

// TestResetReachesFormerWindows: a release forgets what another one has counted.
func TestResetReachesFormerWindows(t *testing.T) {
	eachSliding(t, func(t *testing.T, b redistest.Backend, k kind) {
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

// TestAnotherReleaseThatOnlyLooksChangesNothing: refused attempts and looks under other limits, or limits of
// another form, made the log anew. A look writes nothing. A refusal notes its limits once, and what the
// former release has counted stays as exact as it was.
func TestAnotherReleaseThatOnlyLooksChangesNothing(t *testing.T) {
	eachSliding(t, func(t *testing.T, b redistest.Backend, k kind) {
		clock := guardtest.NewClock()
		a := core.Attempt{Actor: "a"}
		former := release(b, clock, k, Per(10, time.Hour))
		if n, _ := drain(t, former, a); n != 10 {
			t.Fatalf("%d of ten were admitted", n)
		}
		clock.Advance(time.Second)
		was := peek(t, former, a)
		for _, other := range []Limit{
			Per(10, 2*time.Hour), Per(10, time.Hour).WithResolution(7), Per(10, 50*time.Minute).WithResolution(20),
		} {
			before := contents(t, b)
			g := release(b, clock, kinds[0], other)
			if d := peek(t, g, a); d.Remaining != 0 {
				t.Errorf("%v: %+v, want the ten of the former limit to count", other, d)
			}
			if after := contents(t, b); after != before {
				t.Errorf("after a look Redis has\n%s\nbefore it had\n%s", after, before)
			}
			guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonLimited)
			noted := contents(t, b)
			guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonLimited)
			if after := contents(t, b); after != noted {
				t.Errorf("after a second refusal Redis has\n%s\nafter the first it had\n%s", after, noted)
			}
			if is := peek(t, former, a); is.Remaining != 0 || is.RetryAfter != was.RetryAfter {
				t.Errorf("%v: the former limit says %+v, want %+v", other, is, was)
			}
		}
	})
}

// contents returns the lists below the prefix of the test.
func contents(t *testing.T, b redistest.Backend) string {
	t.Helper()
	var text strings.Builder
	err := b.ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error {
		keys, err := c.Keys(ctx, "*"+b.Prefix+"*").Result()
		slices.Sort(keys)
		for _, key := range keys {
			fmt.Fprintln(&text, key, c.LRange(ctx, key, 0, -1).Val())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return text.String()
}
