package script_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// call prepares a call that counts n.
func (c *crowd) call(n int, text string) *script.Call {
	return &script.Call{Runner: c.e.Runner, Script: countOnce, Keys: []string{c.key()}, Args: []any{n, text},
		Limit: c.e.Deadline()}
}

// send makes n calls together, each of which counts 1.
func (c *crowd) send(t *testing.T, n int) {
	t.Helper()
	calls := make([]*script.Call, n)
	for i := range calls {
		calls[i] = c.call(1, string(rune('a'+i)))
	}
	script.Send(t.Context(), calls...)
	for i, call := range calls {
		if reply, ok := call.Reply.([]any); call.Err != nil || !ok || reply[1] != string(rune('a'+i)) {
			t.Errorf("call %d: %v, %v", i, call.Reply, call.Err)
		}
	}
}

// TestCallsThatAreSentTogetherShareAPipeline: by themselves if the way is free, else with others that wait.
func TestCallsThatAreSentTogetherShareAPipeline(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		for _, obeys := range []bool{true, false} {
			c := newCrowd(t, b)
			c.e.SetObeysDeadline(obeys)
			before := c.sum(t)
			c.send(t, 3)
			if got := c.lengths(); !slices.Equal(got, []int{3}) {
				t.Errorf("pipelines of %v, want 3 commands in one", got)
			}
			c.fill(t)
			for range 2 {
				c.all.Go(func() { c.send(t, 4) })
			}
			redistest.Eventually(t, time.Minute, func() bool { return c.e.WaitingCalls() == 8 }, "all wait")
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

// TestCallsOfSeveralEnginesAreSentTogether, and one that cannot share a pipeline goes beside those that do.
func TestCallsOfSeveralEnginesAreSentTogether(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		c, own := newCrowd(t, b), newCrowd(t, b)
		before := c.sum(t)
		alone := c.call(1, "alone")
		alone.Runner = guardtest.NewEngine(b, core.WithoutSharedCalls()).Runner
		long := c.call(1, string(make([]byte, 5000)))
		calls := []*script.Call{c.call(1, "a"), alone, own.call(1, "b"), long, c.call(1, "c")}
		script.Send(t.Context(), calls...)
		for i, call := range calls {
			if call.Err != nil {
				t.Errorf("call %d: %v", i, call.Err)
			}
		}
		if got := append(c.lengths(), own.lengths()...); !slices.Equal(got, []int{2, 1}) {
			t.Errorf("pipelines of %v, want two commands, and one of the other engine", got)
		}
		if got := c.sum(t) - before; got != 5 {
			t.Errorf("%d calls have run, want 5", got)
		}
	})
}

// TestScriptsThatAServerDoesNotKnowAreSentTogether: their sources follow.
func TestScriptsThatAServerDoesNotKnowAreSentTogether(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		c := newCrowd(t, b)
		before := c.sum(t)
		if err := b.ForEachMaster(t.Context(), func(ctx context.Context, rdb *redis.Client) error {
			return rdb.ScriptFlush(ctx).Err()
		}); err != nil {
			t.Fatal(err)
		}
		c.send(t, 3)
		if got := c.sum(t) - before; got != 3 {
			t.Errorf("%d calls have run, want 3", got)
		}
	})
}

// TestHotKeysThatAreAskedTogetherDoNotWaitForEachOther: calls of a key that wait for those under way must not
// keep from going out what others wait for. Nothing here is sent because it has waited for too long.
func TestHotKeysThatAreAskedTogetherDoNotWaitForEachOther(t *testing.T) {
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
					var begun [3]kit.Prepared
					var calls [3]*script.Call
					for i := range begun {
						g := guards[(i*(1+n%2)+n+k)%3] // in all orders
						begun[i] = g.Begin(t.Context(), hot, i > 0, i < 2)
						calls[i] = begun[i].Call
					}
					script.Send(t.Context(), calls[:]...)
					for _, one := range begun {
						if d, err := one.End(t.Context()); err != nil || !d.Allowed {
							t.Errorf("%+v, %v", d, err)
						}
					}
				}
			})
		}
		all.Wait()
		for _, g := range guards {
			wantLeft(t, g, 5000-callers*each)
		}
	})
}

// TestALostPipelineOfOneCallerIsOneFailure, however many calls it had.
func TestALostPipelineOfOneCallerIsOneFailure(t *testing.T) {
	b := redistest.Mini(t)
	faults := redistest.NewFaults(t)
	c := newCrowdOver(t, b, b.NewClientWith(t, faults), core.WithBreaker(2, 0))
	faults.SwallowReply("lost")
	calls := make([]*script.Call, 5)
	for i := range calls {
		calls[i] = c.call(1, "lost")
	}
	script.Send(t.Context(), calls...)
	for _, call := range calls {
		if call.Err == nil || errors.Is(call.Err, core.ErrBreakerOpen) {
			t.Errorf("%v", call.Err)
		}
	}
	if got := c.lengths(); !slices.Equal(got, []int{5}) || len(c.e.OpenBreakers()) != 0 {
		t.Errorf("pipelines of %v, %d open breakers", got, len(c.e.OpenBreakers()))
	}
}

// TestAHookThatPanicsAmongCallsThatAreSentTogetherHoldsUpNobody: what others wait for is given up.
func TestAHookThatPanicsAmongCallsThatAreSentTogetherHoldsUpNobody(t *testing.T) {
	b := redistest.Mini(t)
	c := newCrowd(t, b)
	c.e.SetObeysDeadline(true)
	g := limit.NewSlidingWindow(c.e, "w", limit.PerHour(50))
	first := g.Begin(t.Context(), hot, false, true)
	long := c.call(1, string(make([]byte, 5000))) // goes by itself
	c.panics.Store(true)
	script.Send(t.Context(), long, first.Call)
	for _, call := range []*script.Call{long, first.Call} {
		if call.Err == nil || !strings.Contains(call.Err.Error(), "a hook") {
			t.Errorf("%v: want the panic", call.Err)
		}
	}
	c.panics.Store(false)
	first.Drop()
	if n := c.e.Flights() + c.e.Joins(); n != 0 {
		t.Errorf("%d flights and groups are left", n)
	}
	wantLeft(t, g, 50)
}

// TestACallWaitsForItsTurn, and no longer than it may take itself.
func TestACallWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := core.NewMemory()
		turn := make(chan struct{})
		c := script.Call{Runner: e.Runner, Script: countOnce, Limit: 100 * time.Millisecond, After: turn}
		sent := make(chan time.Duration)
		send := func() {
			begun := time.Now()
			script.Send(t.Context(), &c)
			sent <- time.Since(begun)
		}
		go send()
		if waited := <-sent; waited != 100*time.Millisecond || !errors.Is(c.Err, core.ErrNoRedis) {
			t.Errorf("waited %v, then %v", waited, c.Err)
		}
		go send()
		<-time.After(time.Millisecond)
		close(turn)
		if waited := <-sent; waited != time.Millisecond {
			t.Errorf("waited %v", waited)
		}
	})
}
