package inflight_test

import (
	"testing"
	"testing/synctest"

	"github.com/gatehouse-go/gatehouse/internal/inflight"
)

// room reports whether a unit fits into a limit of this many.
func room(most int64) func(int64) bool {
	return func(underWay int64) bool { return underWay < most }
}

func TestACallThatDoesNotFitOvertakesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := inflight.New()
		first, second := u.Begin("ann", 1, false, true, room(2)), u.Begin("ann", 1, false, true, room(2))
		third := u.Begin("ann", 1, false, true, room(2))
		if !first.Batchable || !second.Batchable || third.Batchable {
			t.Fatalf("%t, %t, %t: want two that fit", first.Batchable, second.Batchable, third.Batchable)
		}
		if other := u.Begin("bob", 1, false, true, room(2)); !other.Batchable {
			t.Error("what others have under way counts")
		}
		goes := make(chan struct{})
		go func() {
			<-third.Settled
			close(goes)
		}()
		first.End()
		if late := u.Begin("ann", 1, false, true, room(9)); late.Batchable {
			t.Error("a call leads while another waits, so that one might wait for ever")
		}
		synctest.Wait()
		select {
		case <-goes:
			t.Error("a call went out before one that others go along with had landed")
		default:
		}
		second.End()
		<-goes
		if next := u.Begin("ann", 1, false, true, room(9)); !next.Batchable {
			t.Error("no call leads any more")
		}
	})
}

func TestLoneCallsAreNotAskedWhetherTheyFit(t *testing.T) {
	u := inflight.New()
	c := u.Begin("ann", 1, false, false, func(int64) bool { t.Error("asked"); return false })
	if c.Settled != nil {
		t.Error("it waits")
	}
	c.End()
	var none inflight.Call
	none.End()
}
