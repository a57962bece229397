package histories

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/redpacket"
)

const (
	packetShares  = 4
	packetTotal   = 100
	packetUsers   = 6
	packetExpires = 10 * time.Second
	packetStep    = 11 * time.Second // the clock between two phases: the packet expires
)

// packetIn is a call of a red packet. IDs are the numbers of the calls that used them first.
type packetIn struct {
	Op     string // grab, refund, verify
	User   int
	ID     int
	Call   int
	At     int64               // milliseconds of the clock since the packet was made
	Shares [packetShares]int64 // of the packet, in the order in which they are grabbed
}

type packetOut struct {
	Reason  core.Reason
	Replay  bool
	Resent  bool  // the call may have been sent again: then what is left is that of a later moment
	Amount  int64 // grabbed or refunded
	Left    int64 // shares
	Grabbed [packetUsers]int64
}

// packetState is a packet. Users have a share when they have a call.
type packetState struct {
	grabbed  int8
	refunded bool
	share    [packetUsers]int8 // the number of the user's share
	calls    [packetUsers]int8 // the call that grabbed it, plus 1
	owners   [most]int8        // the user whose grab has an ID, plus 1
}

// grab gives a user the next share, once.
func (s *packetState) grab(in packetIn) (out packetOut) {
	out.Left = packetShares - int64(s.grabbed)
	if s.refunded {
		out.Left = 0
	}
	owner := int(s.owners[in.ID]) - 1
	switch {
	case owner >= 0 && owner != in.User:
		out.Reason = core.ReasonConflict
	case s.calls[in.User] != 0:
		out.Reason, out.Amount = core.ReasonDuplicate, in.Shares[s.share[in.User]]
		if owner >= 0 {
			out.Reason, out.Replay = core.ReasonOK, int(s.calls[in.User])-1 != in.Call
		}
	case s.refunded || in.At >= packetExpires.Milliseconds():
		out.Reason = core.ReasonClosed
	case s.grabbed == packetShares:
		out.Reason = core.ReasonEmpty
	default:
		out.Reason, out.Amount, out.Left = core.ReasonOK, in.Shares[s.grabbed], out.Left-1
		s.share[in.User], s.calls[in.User] = s.grabbed, int8(in.Call+1)
		s.owners[in.ID] = int8(in.User + 1)
		s.grabbed++
	}
	return out
}

// rest is the amount that nobody has grabbed.
func (s *packetState) rest(shares [packetShares]int64) (sum int64) {
	for _, amount := range shares[s.grabbed:] {
		sum += amount
	}
	return sum
}

var packetModel = deterministic(func(s packetState, in, out any) (bool, packetState) {
	op := in.(packetIn)
	answer, known := out.(packetOut)
	want := packetOut{Resent: answer.Resent}
	switch op.Op {
	case "grab":
		want = s.grab(op)
		if want.Resent = answer.Resent; answer.Resent {
			want.Left = answer.Left
		}
	case "refund":
		if !s.refunded && op.At < packetExpires.Milliseconds() {
			want.Reason = core.ReasonEarly
			break
		}
		want.Amount, s.refunded = s.rest(op.Shares), true
	case "verify":
		for user, call := range s.calls {
			if call != 0 {
				want.Grabbed[user] = op.Shares[s.share[user]]
			}
		}
		if want.Left = packetShares - int64(s.grabbed); s.refunded {
			want.Left, want.Amount = 0, s.rest(op.Shares)
		}
	}
	return !known || answer == want, s
})

func packets() subject {
	return subject{name: "red packet", model: packetModel, single: true, timed: true, phases: 2,
		step: packetStep, open: func(t *testing.T, w *world) (func(*history) error, func(*caller, int)) {
			var guards []*redpacket.Guard
			for _, e := range w.engines {
				guards = append(guards, redpacket.New(e, "packet", redpacket.Options{}))
			}
			begin := func(h *history) error {
				packet := redpacket.Packet{Total: packetTotal, Shares: packetShares, Expires: h.base.Add(packetExpires)}
				for _, g := range guards {
					if _, err := g.Create(t.Context(), h.name, packet); err != nil {
						return err
					}
				}
				v, err := guards[0].Verify(t.Context(), h.name)
				h.shares = [packetShares]int64(v.Left)
				return err
			}
			return begin, func(c *caller, process int) { packetCall(t, c, guards[process]) }
		}}
}

// packetCall grabs a share, and may ask again; or it refunds the rest, or looks.
func packetCall(t *testing.T, c *caller, g *redpacket.Guard) {
	n, ok := c.next()
	if !ok {
		return
	}
	in := packetIn{Op: "grab", User: c.rng.IntN(packetUsers), ID: n, Call: n, At: c.at, Shares: c.shares}
	switch kind := c.rng.IntN(8); {
	case kind == 0, kind == 1 && in.At > 0:
		in.Op = "refund"
		c.do(in, func() (any, error) {
			amount, err := g.Refund(t.Context(), c.name)
			if errors.Is(err, redpacket.ErrPacketOpen) {
				return packetOut{Reason: core.ReasonEarly}, nil
			}
			return packetOut{Amount: amount}, err
		})
		return
	case kind == 2:
		in.Op = "verify"
		c.do(in, func() (any, error) {
			v, err := g.Verify(t.Context(), c.name)
			out := packetOut{Amount: v.Refunded, Left: int64(len(v.Left))}
			for user := range out.Grabbed {
				out.Grabbed[user] = v.Grabbed[fmt.Sprint("user ", user)]
			}
			return out, err
		})
		return
	case kind == 3 && n > 0: // the ID of another grab
		in.ID = c.rng.IntN(n)
	}
	a := core.Attempt{Actor: fmt.Sprint("user ", in.User), Resource: c.name, ID: fmt.Sprint("op ", in.ID)}
	for {
		c.do(in, func() (any, error) {
			d, err := g.Check(t.Context(), a)
			return packetOut{Reason: d.Reason, Replay: d.Replayed, Resent: c.resends, Amount: redpacket.Amount(d),
				Left: d.Remaining}, err
		})
		if n, ok = c.next(); !ok || c.rng.IntN(3) > 0 {
			return
		}
		in.Call = n // asks again, with the same ID
		c.world.healthy()
	}
}
