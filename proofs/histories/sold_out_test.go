package histories

import (
	"slices"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/gatehouse-go/gatehouse/core"
)

// TestABuyerWhoHasEnoughMayHearSoldOut: in a sale of several buckets the buyer's bucket is asked first, and
// then all of them. In between another attempt of the same buyer may reach the limit per buyer and leave too
// few units. The call then hears sold_out, which is true as well. It must not hear that where enough units are
// left, nor in a sale of one bucket, which is asked once.
func TestABuyerWhoHasEnoughMayHearSoldOut(t *testing.T) {
	id := 0
	reserve := func(buyer int, units int64, reason core.Reason, left int64) porcupine.Operation {
		id++
		return porcupine.Operation{Input: saleIn{Op: "reserve", Buyer: buyer, Units: units, ID: id, Call: id},
			Output: saleOut{Reason: reason, Left: left}}
	}
	served := []porcupine.Operation{
		reserve(0, perBuyer, core.ReasonOK, 5), reserve(1, perBuyer, core.ReasonOK, 2),
		reserve(2, 1, core.ReasonOK, 1),
	}
	for name, c := range map[string]struct {
		op              porcupine.Operation
		several, single bool
	}{
		"too few are left":   {reserve(2, perBuyer, core.ReasonSoldOut, 1), true, false},
		"enough are left":    {reserve(0, 1, core.ReasonSoldOut, 1), false, false},
		"the buyer has them": {reserve(2, perBuyer, core.ReasonDuplicate, 1), true, true},
	} {
		ops := slices.Concat(served, []porcupine.Operation{c.op})
		for i := range ops {
			ops[i].Call, ops[i].Return = int64(2*i), int64(2*i+1)
		}
		for several, want := range map[bool]bool{true: c.several, false: c.single} {
			if got := porcupine.CheckOperations(saleModel(several), ops); got != want {
				t.Errorf("%s, several buckets %v: allowed %v, want %v", name, several, got, want)
			}
		}
	}
}
