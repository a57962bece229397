package histories

import (
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/gatehouse-go/gatehouse/core"
)

// TestWhatAFailoverMayLose: a failover may lose the newest sales of a Fast guard, but not an older one
// without those after it, and nothing that an Acked guard has confirmed. Without a failover nothing may be
// lost.
//
// Promise (Every guard): A failover from a dead primary (Sentinel, cluster) loses only the newest
// unreplicated writes.
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
			if got := porcupine.CheckOperations(lossy(s.model, s.keeps(), wholly), c.ops); got != want {
				t.Errorf("%s, %s: allowed %v, want %v", s.name, name, got, want)
			}
		}
	}
}

// TestWhatAFailoverMayLoseOfBuckets: when the master of one bucket dies, the newest reservations of its
// buyers may be lost, and none of another bucket's. On one server both come back at one moment. Units of a
// loan may be there twice, or not at all.
func TestWhatAFailoverMayLoseOfBuckets(t *testing.T) {
	var buyers [saleBuckets][]int
	for buyer, home := range homes {
		buyers[home] = append(buyers[home], buyer)
	}
	id := 0
	call := func(home int, reason core.Reason) porcupine.Operation {
		id++
		return porcupine.Operation{Input: saleIn{Op: "reserve", Buyer: buyers[home][0], Units: 1, ID: id, Call: id},
			Output: saleOut{Reason: reason}}
	}
	again := func(op porcupine.Operation, replayed bool) porcupine.Operation { // asked by another call
		in := op.Input.(saleIn)
		in.Call += 10
		op.Input, op.Output = in, saleOut{Reason: core.ReasonOK, Replayed: replayed}
		return op
	}
	figures := func(units int64) porcupine.Operation {
		return porcupine.Operation{Input: saleIn{Op: "status"}, Output: saleOut{Left: units}}
	}
	dies := porcupine.Operation{Input: failover{}}
	type ops = []porcupine.Operation
	mine, others := call(0, core.ReasonOK), call(1, core.ReasonOK)
	older, newer := call(0, core.ReasonOK), call(0, core.ReasonOK)
	soldOut := call(1, core.ReasonSoldOut)
	for name, c := range map[string]struct {
		ops                ops
		cluster, oneServer bool
	}{
		"all are kept":               {ops{mine, others, dies, again(mine, true), again(others, true)}, true, true},
		"one bucket loses":           {ops{mine, others, dies, again(mine, false), again(others, true)}, true, false},
		"both lose":                  {ops{mine, others, dies, again(mine, false), again(others, false)}, true, true},
		"the other bucket loses":     {ops{others, mine, dies, again(mine, true), again(others, false)}, false, false},
		"the newest is lost":         {ops{older, newer, dies, again(older, true), again(newer, false)}, true, true},
		"the oldest is lost":         {ops{older, newer, dies, again(older, false), again(newer, true)}, false, false},
		"units are there twice":      {ops{dies, figures(saleStock + 2)}, true, true},
		"units are gone":             {ops{dies, figures(saleStock - 2), soldOut}, true, true},
		"too many units":             {ops{dies, figures(2*saleStock + 1)}, false, false},
		"units are gone, no failure": {ops{figures(saleStock - 2)}, false, false},
		"not sold out, no failure":   {ops{soldOut}, false, false},
	} {
		for i := range c.ops {
			c.ops[i].Call, c.ops[i].Return = int64(2*i), int64(2*i+1)
		}
		for cluster, want := range map[bool]bool{true: c.cluster, false: c.oneServer} {
			m := lossy(saleModel(true), neverKept, inParts(cluster))
			if got := porcupine.CheckOperations(m, c.ops); got != want {
				t.Errorf("%s, cluster %v: allowed %v, want %v", name, cluster, got, want)
			}
		}
	}
}
