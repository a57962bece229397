package mounted

import (
	"hash/maphash"
	"reflect"
	"sync"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/pipeline/rule"
)

// A request behind a rule with Failed holds its units while it runs, and most requests give them back. So a
// refusal may be due to requests that have done nothing wrong: an office whose people log in at once. While
// another request of the actor is under way in this process, a refusal is no strike (see Rule.Bans), and its
// Retry-After is short. Requests in other processes are not known.

// runKey is whose requests are counted: those behind a guard, wherever it is mounted.
type runKey struct {
	guard           any
	actor, resource string
}

// running is what the process knows of the requests of one actor.
type running struct {
	underWay int   // attempts that are asked, or that were allowed and have not ended
	ended    int64 // attempts that were allowed and have ended
}

// runs are the requests under way. It has no entries for actors without any.
var runs [64]struct {
	sync.Mutex
	of map[runKey]running
}

var runsSeed = maphash.MakeSeed()

// Run is one attempt. Its methods must not be called concurrently. Those of a nil Run do nothing.
type Run struct {
	key    runKey
	over   bool
	before int64 // running.ended when it was asked
}

// change changes what is known of the key's requests, and returns what it is then.
func (k *runKey) change(underWay int, ended int64) running {
	part := &runs[maphash.Comparable(runsSeed, *k)%uint64(len(runs))]
	part.Lock()
	defer part.Unlock()
	of := part.of[*k]
	of.underWay, of.ended = of.underWay+underWay, of.ended+ended
	switch {
	case of.underWay == 0:
		delete(part.of, *k)
	case part.of == nil:
		part.of = map[runKey]running{*k: of}
	default:
		part.of[*k] = of
	}
	return of
}

// Begin notes an attempt whose guard is about to be asked, if the rule tells runs of the attempt from others.
func (r *Rule) Begin(a *core.Attempt) *Run {
	if r.runs == nil || a.Shadow {
		return nil
	}
	n := &Run{key: runKey{r.runs, a.Actor, a.Resource}}
	n.before = n.key.change(1, 0).ended
	return n
}

// OthersOf reports whether other requests of the actor are under way that may give back what they took.
func (r *Rule) OthersOf(a *core.Attempt) bool {
	key := runKey{r.runs, a.Actor, a.Resource}
	return r.runs != nil && !a.Shadow && key.change(0, 0).underWay > 0
}

// runsOf returns the key under which the runs of a rule's attempts are counted, or nil if they are not
// counted. Units come back only where there is a Failed. Permits come back whatever it says.
func runsOf(r *rule.Rule) any {
	traits := r.Guard.Traits()
	if _, holds := r.Guard.(kit.Holder); r.Failed == nil || traits.KeepsOutcome || holds {
		return nil
	}
	if reflect.TypeOf(r.Guard).Kind() == reflect.Pointer {
		return r.Guard
	}
	return new(byte) // a guard of the application that is no map's key: counted by itself where it is mounted
}

// Refused ends the run of an attempt that was refused. It reports whether others were under way since it was
// asked that may have held what it wanted.
func (n *Run) Refused() bool {
	if n == nil || n.over {
		return false
	}
	n.over = true
	others := n.key.change(-1, 0)
	return others.underWay > 0 || others.ended != n.before
}

// End ends the run. It may be called twice.
func (n *Run) End() {
	if n != nil && !n.over {
		n.over = true
		n.key.change(-1, 1)
	}
}

// Soon makes a refusal one after which units may be back in a moment, although those that the guard knows of
// are not.
func Soon(d *core.Decision) {
	if d.ResetAfter == d.RetryAfter {
		d.ResetAfter = min(d.ResetAfter, UnderWayRetry)
	}
	d.RetryAfter = min(d.RetryAfter, UnderWayRetry)
}

// Running returns for how many actors attempts of a guard are under way. It is for tests.
func Running(g core.Guard) (n int) {
	for i := range runs {
		runs[i].Lock()
		for key := range runs[i].of {
			if key.guard == any(g) {
				n++
			}
		}
		runs[i].Unlock()
	}
	return n
}
