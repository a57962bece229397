package histories

import (
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/gatehouse-go/gatehouse/core"
)

// TestWhatAFailoverMayLose: a failover may lose the newest sales of a Fast guard, but not an older one
// without those after it, and nothing that an Acked guard has confirmed. Without a failover nothing may be
// lost.
func TestWhatAFailoverMayLose(t *testing.T) {
	reserved := func(id int, left int64) porcupine.Operation {
		return porcupine.Operation{Input: saleIn{Op: "reserve", Buyer: id, Units: 1, ID: id, Call: id},
			Output: saleOut{Reason: core.ReasonOK, Left: left}}
	}
	figures := func(isHeld int64) porcupine.Operation {
		return porcupine.Operation{Input: saleIn{Op: "status"},
			Output: saleOut{Left: saleStock - isHeld, Held: isHeld}}
	}
	again := func(id int, left int64, replayed bool) porcupine.Operation { // asked by another call
		op := reserved(id, left)
		op.Output = saleOut{Reason: core.ReasonOK, Replayed: replayed, Left: left}
		op.Input = saleIn{Op: "reserve", Buyer: id, Units: 1, ID: id, Call: 10 + id}
		return op
	}
	dies := porcupine.Operation{Input: failover{}}
	unsure := reserved(2, 0)
	unsure.Output = unknown{}
	type ops = []porcupine.Operation
	first, second := reserved(0, 7), reserved(1, 6)
	for name, c := range map[string]struct {
		ops         ops
		fast, acked bool
	}{
		"all are kept":         {ops{first, second, dies, figures(2)}, true, true},
		"the newest is lost":   {ops{first, second, dies, figures(1)}, true, false},
		"all are lost":         {ops{first, second, dies, figures(0)}, true, false},
		"one too many":         {ops{first, second, dies, figures(3)}, false, false},
		"the oldest is lost":   {ops{first, second, dies, again(1, 6, true), figures(1)}, false, false},
		"an unconfirmed one":   {ops{first, unsure, figures(2), dies, figures(1)}, true, true},
		"lost, no failover":    {ops{first, second, figures(1)}, false, false},
		"lost after failover":  {ops{first, dies, second, figures(1)}, false, false},
		"figures from the end": {ops{first, figures(1), dies, figures(0), again(0, 7, false)}, true, false},
	} {
		for i := range c.ops {
			c.ops[i].Call, c.ops[i].Return = int64(2*i), int64(2*i+1)
		}
		for _, s := range []subject{sales()[0], ackedSale()} {
			want := c.fast
			if s.acked {
				want = c.acked
			}
			if got := porcupine.CheckOperations(lossy(s.model, s.keeps()), c.ops); got != want {
				t.Errorf("%s, %s: allowed %v, want %v", s.name, name, got, want)
			}
		}
	}
}
