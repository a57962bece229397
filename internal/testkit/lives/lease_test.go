package lives

import (
	"context"
	"fmt"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/limit/lease"
)

// The definition of a leased limit of 32 units in 40 s, by two parts, and two processes:
//   - never more than 32 units are handed out in any window, whatever died, was fetched or given back; a
//     failover adds what only the former primary counted, and what was in hand then
//   - when the other process has nothing in hand, nobody is refused while what was handed out leaves room; a
//     unit counts until a window after the end of its part
//   - what was not handed out is back when its process has drained, unless that died
//   - giving back counts once
var _ = explore(life{
	name: "limit/lease", of: []string{"limit/lease"},
	events: alphabet("one two give-back give-first-back give-back-again drain",
		"one-dies max16 just-before part save failover flush"),
	same: func(a, b string) bool {
		switch {
		case a == b && a != "part" && a != "one" && a != "two" && a != "give-back" && a != "give-back-again":
			return true
		case a == "failover" && b == "flush", a == "flush" && b == "failover", a == "save" && b == "failover":
			return true
		}
		return b == "max16" && (a == "part" || a == "just-before" || a == "save" || a == "failover" || a == "flush")
	},
	world: func(p *place) world { return newLeaseWorld(p) },
	row: row{
		over:      "The last unit leaves its window; `Reset`.",
		remembers: "What a process has in hand, until its part ends.",
		forgets:   "What was handed out.",
		back: "Units that a process did not hand out come back once. Those of one that died count for a window " +
			"and a part.",
	},
})

const (
	leaseWindow = 40 * time.Second
	leasePart   = leaseWindow / 2
	leaseBurst  = 12 // checks in a row
)

type leaseWorld struct {
	*place
	gates  [2]*core.Engine
	guards [2]*lease.Guard
	looks  *limit.SlidingWindow // of a process that fetches nothing ahead

	name   string
	most   int64
	given  []*leased
	undone []*leased
	holds  [2]bool // the process may have units in hand
	lost   bool    // a process died, or the Redis lost something, so units may count that nobody got
	extra  int64   // units beyond Max that a failover may have let through
	saved  *savedLease
}

// leased is a unit that was handed out.
type leased struct {
	d      core.Decision
	at     time.Time
	by     int
	over   bool // was given back
	gone   bool // the Redis does not know it
	refund int  // the call that gave it back
	when   time.Time
}

type savedLease struct {
	in    snapshot
	given int // how many units were handed out then
	at    time.Time
}

func (w *leaseWorld) by(context.Context, core.Attempt) ([]limit.Limit, error) {
	return []limit.Limit{limit.Per(w.most, leaseWindow).WithResolution(2)}, nil
}

func newLeaseWorld(p *place) *leaseWorld {
	w := &leaseWorld{place: p}
	w.looks = limit.NewSlidingWindowBy(p.Engine(), "s", w.by)
	w.start(0)
	w.start(1)
	return w
}

// start starts a process.
func (w *leaseWorld) start(i int) {
	w.gates[i] = w.Engine()
	w.guards[i] = lease.NewBy(w.gates[i], "s", w.by)
	w.holds[i] = false
}

func (w *leaseWorld) begin(name string) {
	w.name, w.most, w.given, w.undone = name, 32, nil, nil
	w.holds, w.lost, w.extra, w.saved = [2]bool{}, false, 0, nil
	w.Clock.Advance(5 * time.Second) // the epoch is the end of a part
}

func (w *leaseWorld) attempt() core.Attempt { return core.Attempt{Actor: w.name} }

// partEnd returns the end of the part of a moment.
func partEnd(at time.Time) time.Time { return at.Add(leasePart - time.Microsecond).Truncate(leasePart) }

// handed returns how many units were handed out in the window that ends now, and how many count by parts.
func (w *leaseWorld) handed() (exact, counted int64) {
	for _, u := range w.given {
		if u.over || u.gone {
			continue
		}
		if w.Now().Sub(u.at) < leaseWindow {
			exact++
		}
		if w.Now().Sub(partEnd(u.at)) < leaseWindow {
			counted++
		}
	}
	return exact, counted
}

// inHand returns how many units the processes may hand out beside those that are left in Redis.
func (w *leaseWorld) inHand() (n int64, err error) {
	ctx := context.Background()
	left, err := w.looks.Peek(ctx, w.attempt())
	for i := range w.guards {
		d, wrong := w.guards[i].Peek(ctx, w.attempt())
		if wrong != nil {
			err = wrong
		}
		n += d.Remaining - left.Remaining
	}
	if err != nil {
		return 0, broken("A peek is no error", "%v", err)
	}
	return n, nil
}

func (w *leaseWorld) do(event string) (string, error) {
	told, err := w.event(event)
	if err != nil && w.late() {
		err = errImpossible
	}
	return told, err
}

func (w *leaseWorld) event(event string) (string, error) {
	switch event {
	case "one":
		return w.burst(0)
	case "two":
		return w.burst(1)
	case "give-back", "give-first-back":
		return w.giveBack(event == "give-first-back")
	case "give-back-again":
		if len(w.undone) == 0 {
			return "", errImpossible
		}
		u := w.undone[max(0, len(w.undone)-2)]
		if w.Now().Sub(u.when) > time.Minute {
			return "", errImpossible
		}
		if w.saved != nil || u.gone {
			w.extra++ // a Redis that does not know the first one gives back again
		}
		if err := w.Again(u.refund); err != nil {
			return "", broken("A call that arrives twice is no error", "%v", err)
		}
	case "drain":
		return w.drain()
	case "one-dies":
		w.lost = w.lost || w.holds[0]
		w.start(0)
	case "max16":
		w.most = 16
	case "part":
		w.Pass(leasePart)
	case "just-before":
		at := partEnd(w.Now()).Add(-time.Millisecond)
		if !at.After(w.Now()) {
			return "", errImpossible
		}
		w.PassUntil(at)
	case "save":
		w.saved = &savedLease{w.Save(), len(w.given), w.Now()}
	case "flush", "failover":
		return w.lose(event == "failover")
	}
	return "", nil
}

// lose flushes the Redis, or brings it back to an older state.
func (w *leaseWorld) lose(failover bool) (string, error) {
	known := 0
	if failover {
		if w.saved == nil {
			return "", errImpossible
		}
		known = w.saved.given
	}
	n, err := w.inHand()
	if err != nil {
		return "", err
	}
	w.extra += n
	for _, u := range w.given[known:] {
		u.gone = true
	}
	for _, u := range w.given[:known] {
		u.over = u.over && (u.refund < 0 || u.when.Before(w.saved.at)) // else it counts again
	}
	if w.lost = true; failover {
		w.Load(w.saved.in)
	} else {
		w.Flush()
	}
	w.Clock.Advance(time.Millisecond)
	return fmt.Sprintf("%d in hand", n), nil
}

// burst is checks in a row.
func (w *leaseWorld) burst(by int) (told string, err error) {
	got, here := 0, 0
	for range leaseBurst {
		d, err := w.guards[by].Check(context.Background(), w.attempt())
		if err != nil {
			return "", broken("A check is no error", "%v", err)
		}
		exact, counted := w.handed()
		switch {
		case d.Allowed && exact+1 > w.most+w.extra:
			return told, broken("No window has more than Max", "%d and one more, of %d and %d", exact, w.most, w.extra)
		case !d.Allowed && !w.lost && !w.holds[1-by] && counted+1 <= w.most:
			return told, broken("Nobody below Max is refused", "%d of %d", counted, w.most)
		}
		if w.holds[by] = true; d.Allowed {
			w.given = append(w.given, &leased{d: d, at: w.Now(), by: by, refund: -1})
			got++
		}
		if d.Source == core.SourceLease {
			here++
		}
	}
	return fmt.Sprintf("%d, %d of them by the lease", got, here), nil
}

func (w *leaseWorld) giveBack(first bool) (string, error) {
	open := []*leased{}
	for _, u := range w.given {
		if !u.over && u.refund < 0 && u.d.Attempt.Actor == w.name {
			open = append(open, u)
		}
	}
	if len(open) == 0 {
		return "", errImpossible
	}
	u := open[len(open)-1]
	if first {
		u = open[0]
	}
	w.Clock.Advance(100 * time.Microsecond) // so that Again knows the time of the refund from that of the check
	call := w.Sent()
	for range 2 { // a second time it does nothing
		if err := w.guards[u.by].Settle(context.Background(), u.d, core.Rollback); err != nil {
			return "", broken("Giving back is no error", "%v", err)
		}
	}
	if u.gone {
		w.extra++ // in the same part it gives back another's
	}
	if u.over = true; w.Sent() > call {
		u.refund, u.when = call, w.Now()
		w.undone = append(w.undone, u)
	}
	return fmt.Sprintf("in Redis: %t", w.Sent() > call), nil
}

// drain ends what the processes have in hand.
func (w *leaseWorld) drain() (string, error) {
	for i, gate := range w.gates {
		if err := gate.Drain(context.Background()); err != nil {
			return "", broken("A drain is no error", "%v", err)
		}
		w.holds[i] = false
	}
	d, err := w.looks.Peek(context.Background(), w.attempt())
	if err != nil {
		return "", broken("A peek is no error", "%v", err)
	}
	_, counted := w.handed()
	told := fmt.Sprintf("%d left", d.Remaining)
	if want := max(w.most-counted, 0); !w.lost && d.Remaining != want {
		return told, broken("What was not handed out is back after a drain", "%d left, want %d", d.Remaining, want)
	}
	return told, nil
}

func (w *leaseWorld) end() error {
	if _, err := w.drain(); err != nil && !w.late() {
		return err
	}
	return nil
}
