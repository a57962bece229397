package lives

import (
	"context"
	"errors"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/redpacket"
)

// The definition of a packet of ten in two shares, open for an hour and kept for another:
//   - the first two users who ask while it is open have a share each, for as long as it is kept
//   - an ID that grabbed hears ok again; its user under another ID hears duplicate
//   - after its expiry, and for good once it was refunded, nobody grabs; the rest is refunded, once
//   - left + grabbed + refunded = 10
var _ = explore(life{
	name: "redpacket", of: []string{"redpacket"}, absolute: ":redpacket:",
	events: alphabet("create create-other ann bob cid ann-anew ann-same-id grab-again refund refund-again",
		"just-before expiry forgotten second-earlier flush"),
	world: func(p *place) world {
		return &packetWorld{place: p, guard: redpacket.New(p.Engine(), "packets", redpacket.Options{Keep: time.Hour})}
	},
	row: row{
		over:      "`Keep` after its expiry.",
		remembers: "Nothing: `Create` makes another packet, with new shares.",
		forgets:   "Shares, grabs, the refund, and the IDs.",
		back:      "An ID of an earlier packet grabs anew.",
	},
})

type packetWorld struct {
	*place
	guard *redpacket.Guard

	name     string
	made     bool
	expires  time.Time
	shares   map[string]int64  // user -> amount
	ids      map[string]string // ID -> user
	refunded bool
	amount   int64
	grab     int // the last call that grabbed
	refund   int
}

func (w *packetWorld) begin(name string) {
	w.forget()
	w.name = name
}
func (w *packetWorld) end() error { return nil }

func (w *packetWorld) forget() {
	w.made, w.shares, w.ids, w.refunded, w.amount = false, map[string]int64{}, map[string]string{}, false, 0
	w.grab, w.refund = -1, -1
}

func (w *packetWorld) do(event string) (string, error) {
	ctx := context.Background()
	switch event {
	case "create", "create-other":
		shares := 2
		if event == "create-other" {
			shares = 3
		}
		expires := w.expires
		if !w.made {
			expires = w.Now().Add(time.Hour)
		}
		made, err := w.guard.Create(ctx, w.name, redpacket.Packet{Total: 10, Shares: shares, Expires: expires})
		if !w.made && shares != 2 { // one life has two shares
			return "", errImpossible
		}
		if made == w.made && shares == 2 || errors.Is(err, core.ErrInvalid) != (shares != 2) {
			return "", broken("A packet is made exactly if there is none, and no other", "%t, %v", made, err)
		}
		w.made, w.expires = true, expires
	case "ann", "bob", "cid":
		return w.take(event, event)
	case "ann-anew":
		return w.take("ann", "anew")
	case "ann-same-id": // the ID of another
		return w.take("ann", "bob")
	case "grab-again", "refund-again":
		call := w.grab
		if event == "refund-again" {
			call = w.refund
		}
		if call < 0 {
			return "", errImpossible
		}
		if err := w.Again(call); err != nil {
			return "", broken("A call that arrives twice is no error", "%v", err)
		}
		if event == "refund-again" && w.made && !w.Now().Before(w.expires) {
			w.over()
		}
	case "refund":
		w.refund = w.Sent()
		amount, err := w.guard.Refund(ctx, w.name)
		switch early := w.Now().Before(w.expires); {
		case !w.made:
			if !errors.Is(err, redpacket.ErrNoPacket) {
				return "", broken("What is not there is not refunded", "%v", err)
			}
		case early && !w.refunded:
			if !errors.Is(err, redpacket.ErrPacketOpen) {
				return "", broken("An open packet is not refunded", "%v", err)
			}
		default:
			w.over()
			if err != nil || amount != w.amount {
				return "", broken("The rest is refunded once", "%d, want %d: %v", amount, w.amount, err)
			}
		}
	case "just-before", "expiry", "forgotten":
		if !w.made {
			return "", errImpossible
		}
		behind := map[string]time.Duration{"just-before": -time.Millisecond, "forgotten": time.Hour}
		w.PassUntil(w.expires.Add(behind[event]))
	case "second-earlier":
		w.Pass(-time.Second)
	case "flush":
		w.Flush()
		w.forget()
	}
	if w.made && !w.Now().Before(w.expires.Add(time.Hour)) {
		w.forget()
	}
	return w.check()
}

// over refunds the rest.
func (w *packetWorld) over() {
	if !w.refunded {
		w.refunded, w.amount = true, 10
		for _, share := range w.shares {
			w.amount -= share
		}
	}
}

func (w *packetWorld) take(user, id string) (string, error) {
	call := w.Sent()
	d, err := w.guard.Check(context.Background(), core.Attempt{Actor: user, Resource: w.name, ID: id})
	if err != nil {
		return "", broken("A check is no error", "%v", err)
	}
	share, has := w.shares[user]
	owner, known := w.ids[id]
	want, amount := core.ReasonOK, redpacket.Amount(d)
	switch {
	case !w.made:
		want = core.ReasonNotReady
	case known && owner != user:
		want = core.ReasonConflict
	case has && !known:
		want = core.ReasonDuplicate
	case has:
	case w.refunded || !w.Now().Before(w.expires):
		want = core.ReasonClosed
	case len(w.shares) == 2:
		want = core.ReasonEmpty
	default:
		w.shares[user], w.ids[id], share, has, w.grab = amount, user, amount, true, call
	}
	told := string(d.Reason)
	if d.Reason != want {
		return told, broken("The first two who ask in time have a share each", "%s, want %s", d.Reason, want)
	}
	if has && (want == core.ReasonOK || want == core.ReasonDuplicate) && (amount != share || amount < 1) {
		return told, broken("A share stays what it is", "%d, want %d", amount, share)
	}
	if d.Replayed != (want == core.ReasonOK && known) {
		return told, broken("A repetition is a replay", "%t", d.Replayed)
	}
	return told, nil
}

func (w *packetWorld) check() (string, error) {
	v, err := w.guard.Verify(context.Background(), w.name)
	if !w.made {
		if !errors.Is(err, redpacket.ErrNoPacket) {
			return "", broken("What is over is not there", "%v", err)
		}
		return "", nil
	}
	sum := v.Refunded
	for _, amount := range v.Left {
		sum += amount
	}
	for _, amount := range v.Grabbed {
		sum += amount
	}
	if err != nil || sum != 10 || v.Refunded != w.amount || len(v.Grabbed) != len(w.shares) {
		return "", broken("left + grabbed + refunded = total", "%+v, want %v and %d: %v", v, w.shares, w.amount, err)
	}
	return "", nil
}
