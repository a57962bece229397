package leases_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/lock"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestOneUserFillsNoLine: of a thousand requests of one user ten wait, and the others are refused as too
// many. So those of twenty users who come later are all served.
//
// Promise: Ten attempts of an actor wait for a pool in each process (`Waiters`). Further ones are refused as
// `limited`.
func TestOneUserFillsNoLine(t *testing.T) {
	makes := map[string]func(e *core.Engine) core.Guard{
		"semaphore": func(e *core.Engine) core.Guard {
			return semaphore.New(e, "g", semaphore.Options{Max: 1, Wait: time.Minute, Lease: time.Minute})
		},
		"lock": func(e *core.Engine) core.Guard {
			return lock.New(e, "g", lock.Options{Wait: time.Minute, Lease: time.Minute})
		},
	}
	for kind, of := range makes {
		t.Run(kind, func(t *testing.T) {
			redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
				oneUser(t, of(guardtest.NewEngine(b, core.WithoutBreaker()))) // calls of a line are short
			})
			t.Run("memory", func(t *testing.T) { oneUser(t, of(guardtest.NewEngine(redistest.Backend{}))) })
		})
	}
}

func oneUser(t *testing.T, g core.Guard) {
	const many, others, may = 1000, 20, 10
	held := guardtest.Check(t, g, core.Attempt{Actor: "eve", Resource: "p"})
	var refused, served atomic.Int64
	ask := func(actor string) {
		d, err := g.Check(t.Context(), core.Attempt{Actor: actor, Resource: "p"})
		switch {
		case err != nil:
			t.Errorf("%s: %v", actor, err)
		case d.Allowed:
			served.Add(1)
			guardtest.Settle(t, g, d, core.Commit)
		case actor != "eve" || d.Reason != core.ReasonLimited || d.RetryAfter <= 0:
			t.Errorf("%+v", d)
		default:
			refused.Add(1)
		}
	}
	for range many {
		go ask("eve")
	}
	redistest.Eventually(t, time.Minute, func() bool { return refused.Load() == many-may },
		"too few are refused")
	if before := served.Load(); before > 0 {
		t.Errorf("%d were served while another held the claim", before)
	}
	ask("eve") // does not ask Redis
	for i := range others {
		go ask(fmt.Sprint("user", i))
	}
	guardtest.Settle(t, g, held, core.Commit)
	redistest.Eventually(t, time.Minute, func() bool { return served.Load() == may+others },
		"not all are served")
	d := guardtest.Check(t, g, core.Attempt{Actor: "eve", Resource: "p"}) // her requests have left
	guardtest.WantReason(t, d, core.ReasonOK)
	guardtest.Settle(t, g, d, core.Commit)
}
