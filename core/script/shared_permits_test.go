package script_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/lua"
)

var acquireScript = script.New("acquire", lua.Source("semaphore/acquire"), script.Idempotent)

func wantPermits(t *testing.T, g *semaphore.Guard, want int64) {
	t.Helper()
	if s, err := g.Peek(t.Context(), claimOf(0)); err != nil || s.Held != want {
		t.Errorf("%+v, %v: want %d permits held", s, err, want)
	}
}

// permits makes a semaphore whose scripts are loaded, and lets no further calls of the crowd out.
func permits(t *testing.T, c *crowd, most int64) *semaphore.Guard {
	t.Helper()
	g := semaphore.New(c.e, "s", semaphore.Options{Max: most})
	if err := c.e.Preload(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.fill(t)
	return g
}

// TestPermitsShareAPipeline: checks of the same moment, of which as many are allowed as there are permits.
func TestPermitsShareAPipeline(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		c := newCrowd(t, b)
		g := permits(t, c, 20)
		allowed := make(chan core.Decision, 30)
		c.wait(t, 30, func(i int) {
			d, err := g.Check(t.Context(), claimOf(i))
			if err != nil || d.Allowed != (d.Reason == core.ReasonOK) {
				t.Errorf("%+v, %v", d, err)
			}
			if d.Allowed {
				allowed <- d
			}
		})
		c.open()
		close(allowed)
		if got := c.lengths(); !slices.Equal(got, []int{30}) || len(allowed) != 20 {
			t.Errorf("pipelines of %v calls, %d of them allowed: want one of 30, and 20", got, len(allowed))
		}
		wantPermits(t, g, 20)
		for d := range allowed {
			if err := g.Settle(t.Context(), d, core.Commit); err != nil {
				t.Error(err)
			}
		}
		wantPermits(t, g, 0)
	})
}

// TestPermitsOfALostPipelineThatArriveLateAreNotHeld: their callers have sent the calls again by themselves,
// and given the permits back.
func TestPermitsOfALostPipelineThatArriveLateAreNotHeld(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		r := newLostRoad(acquireScript.SHA())
		c := r.over(t, b)
		g := permits(t, c, 20)
		c.wait(t, 20, func(i int) {
			d, err := g.Check(t.Context(), claimOf(i))
			if err != nil || !d.Allowed {
				t.Errorf("%+v, %v", d, err)
			} else if err := g.Settle(t.Context(), d, core.Commit); err != nil {
				t.Error(err)
			}
		})
		c.open()
		r.deliver(t, c)
		wantPermits(t, g, 0)
	})
}

// TestAPermitWhoseCallerLeftAPipelineIsTakenBack: it arrives after its undo, and is not held.
func TestAPermitWhoseCallerLeftAPipelineIsTakenBack(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		r, goOn := newLostRoad(acquireScript.SHA()), make(chan struct{})
		r.until = goOn
		c := r.over(t, b)
		g := permits(t, c, 20)
		ctx, cancel := context.WithCancel(t.Context())
		c.wait(t, 20, func(i int) {
			if d, err := g.Check(ctx, claimOf(i)); !errors.Is(err, context.Canceled) {
				t.Errorf("%+v, %v", d, err)
			}
		})
		c.all.Go(func() {
			<-r.sent
			cancel()
		})
		c.open()
		redistest.Eventually(t, time.Minute, func() bool { return c.e.Pending() == 0 }, "all is undone")
		close(goOn)
		r.deliver(t, c)
		wantPermits(t, g, 0)
	})
}
