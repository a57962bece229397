package lives

import (
	"context"
	"errors"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/lock"
)

// The definition of a lock with a lease of an hour, in two processes:
//   - an attempt has the lock exactly if nobody has: nobody took it, or gave it back, lost it, or their lease is over
//   - each fence is greater than all before
//   - giving back frees the lock exactly if it is still theirs; Extend renews it exactly then
//   - what arrives a second time changes nothing
//   - a clock that is set back may end a lease sooner
var _ = explore(life{
	name: "lock", of: []string{"lock"},
	events: alphabet("take take-elsewhere extend extend-earlier break take-again",
		"give-back give-back-earlier give-back-again just-before after day minute-earlier flush"),
	world: func(p *place) world {
		w := &lockWorld{place: p}
		for range 2 {
			w.guards = append(w.guards, lock.New(p.Engine(), "lock", lock.Options{Lease: time.Hour}))
		}
		return w
	},
	row: row{
		over:      "`Settle`, `Break`, the end of the lease.",
		remembers: "The last fence, for a day.",
		forgets:   "The holder.",
		back:      "A holder of earlier frees nothing, and `Extend` gets `lock.ErrLost`.",
	},
})

type lockWorld struct {
	*place
	guards []*lock.Guard

	name    string
	holder  *holder
	taken   []*holder
	fence   int64
	givenOn int // the last call of one, -1: none
	forgets bool
	setBack bool
}

// A holder is who was given the lock.
type holder struct {
	guard *lock.Guard
	d     core.Decision
	until time.Time
	call  int
	over  bool // was given back
}

func (w *lockWorld) begin(name string) {
	for _, h := range w.taken {
		if !h.over { // a process renews what it holds
			_ = h.guard.Settle(context.Background(), h.d, core.Commit)
		}
	}
	*w = lockWorld{place: w.place, guards: w.guards, name: name, givenOn: -1}
}
func (w *lockWorld) end() error { return nil }

func (w *lockWorld) held() bool { return w.holder != nil && w.Now().Before(w.holder.until) }

func (w *lockWorld) do(event string) (string, error) {
	ctx := context.Background()
	held := w.held()
	var open []*holder
	for _, h := range w.taken {
		if !h.over {
			open = append(open, h)
		}
	}
	switch event {
	case "take":
		return w.take(w.guards[0])
	case "take-elsewhere":
		return w.take(w.guards[1])
	case "give-back", "give-back-earlier", "extend", "extend-earlier":
		if len(open) == 0 || event[len(event)-1] == 'r' && len(open) == 1 {
			return "", errImpossible
		}
		h := open[len(open)-1]
		if event[len(event)-1] == 'r' {
			h = open[0]
		}
		if event[0] == 'e' {
			err := h.guard.Extend(ctx, h.d)
			theirs := held && w.holder == h
			if errors.Is(err, lock.ErrLost) == theirs || err != nil && theirs {
				return "", broken("A lock is renewed exactly while it is theirs", "%v, still theirs: %t", err, theirs)
			}
			if err == nil {
				h.until = w.Now().Add(time.Hour)
			}
			return "", nil
		}
		h.over, w.givenOn = true, w.Sent()
		if err := h.guard.Settle(ctx, h.d, core.Commit); err != nil {
			return "", broken("Giving back is no error", "%v", err)
		}
		if w.Sent() == w.givenOn { // the process knew that it was lost
			w.givenOn = -1
		}
		if w.holder == h {
			w.holder = nil
		}
	case "break":
		had, err := w.guards[0].Break(ctx, w.name)
		if err != nil || had != (w.holder != nil) {
			return "", broken("Break reports whether somebody has not given it back", "%t, want %t: %v", had, w.holder != nil, err)
		}
		w.holder = nil
	case "take-again": // the reply of the holder's call was lost
		if !held || event == "just-before" && w.setBack { // then it ends a minute earlier for those who ask
			return "", errImpossible
		}
		return "", w.again(w.holder.call)
	case "give-back-again":
		return "", w.again(w.givenOn)
	case "just-before", "after":
		if !held || event == "just-before" && w.setBack { // then it ends a minute earlier for those who ask
			return "", errImpossible
		}
		at := w.holder.until
		if event == "just-before" {
			at = at.Add(-time.Millisecond)
		}
		w.PassUntil(at)
	case "day":
		w.Pass(26 * time.Hour)
		w.holder = nil
	case "minute-earlier":
		if w.holder != nil && !held { // who has heard that it is over goes by that
			return "", errImpossible
		}
		w.Pass(-time.Minute)
		w.setBack = true
	case "flush":
		w.Flush()
		w.Pass(time.Millisecond) // no two fences are of one moment
		w.holder, w.forgets = nil, true
	}
	return "", nil
}

func (w *lockWorld) again(call int) error {
	if call < 0 {
		return errImpossible
	}
	if err := w.Again(call); err != nil {
		return broken("A call that arrives twice is no error", "%v", err)
	}
	return nil
}

func (w *lockWorld) take(g *lock.Guard) (string, error) {
	call := w.Sent()
	d, err := g.Check(context.Background(), core.Attempt{Actor: "ann", Resource: w.name})
	if err != nil || d.Allowed == w.held() {
		return string(d.Reason), broken("One at a time has the lock", "held: %t: %v", w.held(), err)
	}
	if d.Allowed {
		fence, ok := g.Fence(d)
		if lower := fence <= w.fence; !ok || lower && (!w.forgets || !w.setBack) {
			return "", broken("A fence is greater than all before", "%d after %d", fence, w.fence)
		}
		w.fence = max(fence, w.fence)
		w.holder = &holder{guard: g, d: d, until: w.Now().Add(time.Hour), call: call}
		w.taken = append(w.taken, w.holder)
	}
	return string(d.Reason), nil
}
