package redpacket

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestRedPacketThatIsLostInPartSaysSo loses each key of a packet, before it is refunded and after. What still
// changes or reads the packet says what is lost, and gives nothing away.
//
// Promise: A packet that lost its shares, grabs or record gives nothing away, and its errors say so.
func TestRedPacketThatIsLostInPartSaysSo(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "r", Options{})
		wantLost := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, ErrLost) || errors.Is(err, ErrNoPacket) {
				t.Errorf("%s: %v: want an ErrLost", what, err)
			}
		}
		for _, refunded := range []bool{false, true} {
			for key, name := range []string{"packet", "shares", "grabs", "operations"} {
				id := fmt.Sprint(name, refunded)
				createPacket(t, g, id, Packet{Total: 100, Shares: 3, Expires: clock.Now().Add(time.Minute)})
				ann := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: id, ID: "op"})
				if refunded {
					clock.Advance(time.Minute)
					if _, err := g.Refund(t.Context(), id); err != nil {
						t.Fatal(err)
					}
				}
				b.Client.Del(t.Context(), g.packetKeys(id)[key])
				again := func() (core.Decision, error) { return g.Check(t.Context(), ann.Attempt) }
				switch {
				case name == "packet":
					d, err := again()
					if err != nil {
						t.Fatal(err)
					}
					guardtest.WantReason(t, d, core.ReasonNotReady)
					_, err = g.Refund(t.Context(), id)
					wantLost(id, err)
					_, err = g.Create(t.Context(), id, Packet{Total: 100, Shares: 3, Expires: clock.Now().Add(time.Hour)})
					wantLost(id, err)
					if _, err = g.Verify(t.Context(), id); !strings.Contains(err.Error(), "the packet ") {
						t.Errorf("%s: %v", id, err)
					}
					wantLost(id, err)
				case name == "operations": // the amount is known
					d, err := again()
					if err != nil || d.Reason != core.ReasonDuplicate || Amount(d) != Amount(ann) {
						t.Errorf("%s: %+v, %v", id, d, err)
					}
				case name == "shares" && refunded: // there are none
				default:
					_, err := again()
					wantLost(id, err)
					v, err := g.Verify(t.Context(), id)
					wantLost(id, err)
					if v.Packet.Total != 100 || name == "shares" && v.Grabbed["ann"] != Amount(ann) {
						t.Errorf("%s: %+v", id, v)
					}
					if !refunded {
						clock.Advance(time.Minute)
						_, err = g.Refund(t.Context(), id)
						wantLost(id, err)
					}
				}
			}
		}
	})
}

// TestRedPacketAskedAgainIsAReplay: the attempt of a decision has no call name, so asking again with it is a
// replay, and nobody pays a second time because of Replayed.
func TestRedPacketAskedAgainIsAReplay(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "r", Options{})
		createPacket(t, g, "p", Packet{Total: 100, Shares: 3, Expires: time.Now().Add(time.Minute)})
		first := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p"})
		again := guardtest.Check(t, g, first.Attempt)
		if first.Replayed || !again.Replayed || again.Kept || Amount(again) != Amount(first) {
			t.Errorf("%+v, then %+v", first, again)
		}
	})
}
