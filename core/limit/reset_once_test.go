package limit

import (
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestAResetWhoseReplyWasLostIsNotSentAgain: go-redis sent it again, and units that were taken in between
// were free. Now the caller hears of it, and decides.
//
// Promise: A Reset is sent once, so units taken after it count. If its reply is lost, the caller gets an
// error.
func TestAResetWhoseReplyWasLostIsNotSentAgain(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		e := guardtest.NewEngine(b)
		for _, k := range kinds {
			g := k.make(e, k.name, PerDay(5))
			if err := e.Preload(t.Context()); err != nil {
				t.Fatal(err)
			}
			a := core.Attempt{Actor: "ann"}
			drain(t, g, a)
			faults.SwallowReply("evalsha")
			if err := g.Reset(t.Context(), a); err == nil {
				t.Errorf("%s: the lost reply was not reported: was the reset sent again?", k.name)
			}
			if d := guardtest.Check(t, g, a); d.Remaining != 4 {
				t.Errorf("%s: %+v: want 4 remaining: the reset has been done", k.name, d)
			}
			if d := peek(t, g, a); d.Remaining != 4 {
				t.Errorf("%s: %+v: want 4 remaining: the unit taken since counts", k.name, d)
			}
			if err := g.Reset(t.Context(), a); err != nil {
				t.Error(err)
			}
			if d := peek(t, g, a); d.Remaining != 5 {
				t.Errorf("%s: %+v: want 5 remaining", k.name, d)
			}
		}
	})
}
