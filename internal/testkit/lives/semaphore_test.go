package lives

import (
	"context"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
)

// The definition of a semaphore of three permits with a lease of an hour, in two processes, one of which comes
// to have another Max:
//   - an attempt gets its permits exactly if so many are free; held are those that were given, and neither given
//     back nor evicted, until their lease is over
//   - giving back frees permits exactly if they are still theirs; leases are renewed exactly then
//   - what arrives a second time changes nothing
//   - a clock that is set back may end a lease sooner: an attempt meanwhile does, and no attempt is kept out for
//     longer than an hour
var _ = explore(life{
	name: "semaphore", of: []string{"semaphore"},
	events: alphabet("take take-two take-elsewhere take-all evict evict-all take-again",
		"wider narrower give-back give-back-earlier give-back-again just-before after minute-earlier flush"),
	world: func(p *place) world {
		w := &semaphoreWorld{place: p, most: map[*semaphore.Guard]int64{}}
		for _, most := range []int64{3, 3, 5, 1} {
			g := semaphore.New(p.Engine(), "semaphore", semaphore.Options{Max: most, Lease: time.Hour})
			w.guards, w.most[g] = append(w.guards, g), most
		}
		return w
	},
	row: row{
		over:      "`Settle`, `Evict`, the end of the lease.",
		remembers: "Nothing.",
		forgets:   "The holders.",
		back:      "A holder of earlier frees nothing.",
	},
})

type semaphoreWorld struct {
	*place
	guards []*semaphore.Guard // of two processes; and the second one's, with another Max
	most   map[*semaphore.Guard]int64

	name    string
	second  int // the guard of the second process
	given   []*permits
	gaveOn  int // the last call that gave back, -1: none
	setBack bool
}

// permits are what an attempt was given.
type permits struct {
	guard           *semaphore.Guard
	d               core.Decision
	cost            int64
	until, latest   time.Time // latest: where no attempt ends it sooner
	call            int
	theirs, settled bool
}

func (w *semaphoreWorld) begin(name string) {
	for _, h := range w.given {
		if !h.settled { // a process renews what it holds
			_ = h.guard.Settle(context.Background(), h.d, core.Commit)
		}
	}
	*w = semaphoreWorld{place: w.place, guards: w.guards, most: w.most, name: name, second: 1, gaveOn: -1}
}
func (w *semaphoreWorld) end() error { return nil }

// held returns who holds permits.
func (w *semaphoreWorld) held() (held []*permits, sum int64) {
	for _, h := range w.given {
		if h.theirs && w.Now().Before(h.until) {
			held = append(held, h)
			sum += h.cost
		}
	}
	return held, sum
}

func (w *semaphoreWorld) do(event string) (string, error) {
	seen, err := w.event(event)
	if err != nil {
		return seen, err
	}
	_, sum := w.held()
	s, err := w.guards[0].Peek(context.Background(), core.Attempt{Resource: w.name})
	if err != nil || s.Held != sum {
		return seen, broken("Held are the permits that were given and not given back", "%d, want %d: %v", s.Held, sum, err)
	}
	return seen, nil
}

func (w *semaphoreWorld) event(event string) (string, error) {
	ctx := context.Background()
	held, sum := w.held()
	switch event {
	case "take":
		return w.take(w.guards[0], 1)
	case "take-two":
		return w.take(w.guards[0], 2)
	case "take-elsewhere":
		return w.take(w.guards[w.second], 1)
	case "take-all":
		return w.take(w.guards[w.second], w.most[w.guards[w.second]])
	case "wider":
		w.second = 2
	case "narrower":
		w.second = 3
	case "evict", "evict-all":
		actor := ""
		if event == "evict" {
			actor = "one"
		}
		var had, most int64
		for _, h := range w.given {
			if h.theirs && (actor == "" || h.cost == 1) {
				if most += h.cost; w.Now().Before(h.until) {
					had += h.cost
				}
				h.theirs = false
			}
		}
		n, err := w.guards[0].Evict(ctx, core.Attempt{Actor: actor, Resource: w.name})
		if err != nil || n < had || n > most { // of leases that are over it may know
			return "", broken("Evict takes what is held", "%d, want %d to %d: %v", n, had, most, err)
		}
	case "give-back", "give-back-earlier":
		var open []*permits
		for _, h := range w.given {
			if !h.settled {
				open = append(open, h)
			}
		}
		earlier := strings.HasSuffix(event, "earlier")
		if len(open) == 0 || earlier && len(open) == 1 {
			return "", errImpossible
		}
		h := open[len(open)-1]
		if earlier {
			h = open[0]
		}
		w.gaveOn = w.Sent()
		h.settled, h.theirs = true, false
		if err := h.guard.Settle(ctx, h.d, core.Commit); err != nil {
			return "", broken("Giving back is no error", "%v", err)
		}
	case "take-again": // the reply of the last holder's call was lost
		if len(held) == 0 {
			return "", errImpossible
		}
		return "", w.again(held[len(held)-1].call)
	case "give-back-again":
		return "", w.again(w.gaveOn)
	case "just-before", "after":
		if sum == 0 || event == "just-before" && w.setBack { // then it ends sooner for those who ask
			return "", errImpossible
		}
		at := held[0].until
		if event == "just-before" {
			at = at.Add(-time.Millisecond)
		} else if w.setBack {
			for _, h := range held {
				if h.latest.After(at) {
					at = h.latest
				}
			}
		}
		w.PassUntil(at)
	case "minute-earlier":
		if len(held) < len(w.given) { // who has heard that it is over goes by that
			return "", errImpossible
		}
		w.Pass(-time.Minute)
		w.setBack = true
		for _, h := range held { // no lease is longer than an hour; who asks ends it in time
			h.until = minTime(h.until, w.Now().Add(time.Hour))
		}
	case "flush":
		w.Flush()
		for _, h := range w.given {
			h.theirs = false
		}
	}
	return "", nil
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func (w *semaphoreWorld) again(call int) error {
	if call < 0 {
		return errImpossible
	}
	if err := w.Again(call); err != nil {
		return broken("A call that arrives twice is no error", "%v", err)
	}
	return nil
}

func (w *semaphoreWorld) take(g *semaphore.Guard, cost int64) (string, error) {
	call := w.Sent()
	_, sum := w.held()
	actor := "one"
	if cost > 1 {
		actor = "more"
	}
	d, err := g.Check(context.Background(), core.Attempt{Actor: actor, Resource: w.name, Cost: cost})
	if free := sum+cost <= w.most[g]; err != nil || d.Allowed != free {
		return string(d.Reason), broken("Permits are given exactly if so many are free",
			"%d of %d are held, asked for %d: %q, %v", sum, w.most[g], cost, d.Reason, err)
	}
	if d.Allowed {
		until := w.Now().Add(time.Hour)
		w.given = append(w.given, &permits{guard: g, d: d, cost: cost, until: until, latest: until, call: call,
			theirs: true})
	}
	return string(d.Reason), nil
}
