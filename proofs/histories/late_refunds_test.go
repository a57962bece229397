package histories

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestLateRefundsAreAsTheModelsSay: a refund may arrive when the application that sent it is dead, and the
// clock of the others has gone on. It gives back its own units, and moves no others.
func TestLateRefundsAreAsTheModelsSay(t *testing.T) {
	b := redistest.Single(t)
	each := limit.Per(limitMax, limitWindow)
	for name, c := range map[string]struct {
		model limitAlgorithm
		make  func(e *core.Engine, name string, l limit.Limit) limiter
	}{
		"sliding": {sliding, func(e *core.Engine, name string, l limit.Limit) limiter {
			return limit.NewSlidingWindow(e, name, l)
		}},
		"fixed": {fixed, func(e *core.Engine, name string, l limit.Limit) limiter {
			return limit.NewFixedWindow(e, name, l)
		}},
		"bucket": {bucket, func(e *core.Engine, name string, l limit.Limit) limiter {
			return limit.NewTokenBucket(e, name, l)
		}},
	} {
		clock := guardtest.NewClock()
		begin := clock.Now()
		g := c.make(guardtest.NewEngine(b, guardtest.WithClock(clock)), name, each)
		var ops []porcupine.Operation
		did := func(in limitIn, out any) {
			n := int64(len(ops))
			ops = append(ops, porcupine.Operation{Input: in, Call: 2 * n, Output: out, Return: 2*n + 1})
		}
		check := func(call, cost int, at time.Duration) core.Decision {
			clock.Set(begin.Add(at))
			d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Cost: int64(cost)})
			did(limitIn{Op: "check", Call: call, Cost: cost, At: at.Milliseconds()}, limitOut{d.Allowed, d.Remaining})
			return d
		}
		first := check(0, 2, 0)
		check(1, 1, time.Minute)
		clock.Set(begin) // the moment that the refund has with it
		if err := g.Refund(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		did(limitIn{Op: "refund", Call: 0, Cost: 2, At: 0}, unknown{})
		check(2, 1, time.Minute)
		check(3, 1, limitWindow+10*time.Second) // those of the first minute still count
		if !porcupine.CheckOperations(limitModel(c.model), ops) {
			t.Errorf("%s: the model does not allow %+v", name, ops)
		}
	}
}
