package redpacket

import (
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestAGrabThatArrivesLateTakesOneShare: a grab is not taken back, so one that the network delivers late
// gives its user the share that asking again has given already, and a user who was refused nothing.
//
// Promise (Every guard): Grabs of red packets are not taken back. A late grab takes no second share.
func TestAGrabThatArrivesLateTakesOneShare(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		e := guardtest.NewEngine(b, guardtest.WithClock(clock))
		g := New(e, "r", Options{})
		if err := e.Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		packet := Packet{Total: 100, Shares: 2, Expires: clock.Now().Add(time.Minute)}
		if created, err := g.Create(t.Context(), "p", packet); err != nil || !created {
			t.Fatalf("Create: %v, %v", created, err)
		}
		grab := func(user string) core.Decision {
			t.Helper()
			faults.HoldBack(redPacketGrabScript.SHA())
			return guardtest.Check(t, g, core.Attempt{Actor: user, Resource: "p", ID: "of " + user})
		}
		ann := grab("ann")
		guardtest.WantReason(t, ann, core.ReasonOK)
		faults.Deliver(t, 1)
		again := guardtest.Check(t, g, ann.Attempt)
		guardtest.WantReason(t, again, core.ReasonOK)
		if !again.Replayed || Amount(again) != Amount(ann) {
			t.Errorf("%+v, then %+v: want a replay", ann, again)
		}
		guardtest.WantReason(t, grab("bob"), core.ReasonOK)
		guardtest.WantReason(t, grab("cid"), core.ReasonEmpty)
		clock.Advance(time.Minute)
		guardtest.WantReason(t, grab("dan"), core.ReasonClosed)
		faults.Deliver(t, 3)
		v, err := g.Verify(t.Context(), "p")
		if err != nil || len(v.Grabbed) != 2 || v.Grabbed["ann"] != Amount(ann) || len(v.Left) != 0 {
			t.Errorf("%+v, %v: want the shares of ann and bob", v, err)
		}
	})
}
