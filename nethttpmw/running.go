package nethttpmw

import (
	"container/list"
	"reflect"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
)

// A request behind a rule with Failed holds its units while it runs, and most requests give them back. So a
// refusal may be due to requests that have done nothing wrong: an office whose people log in at once. Such a
// refusal is no strike (see Rule.Bans), and units may be back in a moment, long before the limit's own units
// are.
//
// The process can tell such a refusal from others: had the requests that it runs itself taken nothing, there
// would have been units enough. It does not know what runs in other processes.

// answersMost is how long a refusal waits for the answers to attempts of the same actor that were made before
// it. They are on their way already.
const answersMost = time.Second

// runs counts the units of requests that run. It has no entries for actors without any.
var runs = runsOfAll{of: map[runKey]*runsOfOne{}}

type runsOfAll struct {
	mu sync.Mutex
	of map[runKey]*runsOfOne
}

// runKey is whose units are counted: those of a guard, wherever it is mounted.
type runKey struct {
	guard           any
	actor, resource string
}

// runsOfOne is what the process knows of the requests of one actor.
type runsOfOne struct {
	attempts int       // attempts that are asked, or that were allowed and have not ended
	asked    list.List // those that wait for an answer, the earliest first
	number   int64     // of the last one
	held     int64     // units of those that were allowed and have not ended
	given    int64     // units of those that have ended
}

// run is one attempt. Its methods must not be called concurrently. Those of a nil run do nothing.
type run struct {
	key      runKey
	of       *runsOfOne
	number   int64
	asked    *list.Element // nil when the guard has answered
	answered chan struct{} // closed then
	units    int64         // that it holds
	before   int64         // of.given when it was asked
}

// begin notes an attempt whose guard is about to be asked, if the rule tells runs of the attempt from others.
func (r *mounted) begin(a *core.Attempt) *run {
	if r.runs == nil || a.Shadow {
		return nil
	}
	key := runKey{r.runs, a.Actor, a.Resource}
	runs.mu.Lock()
	defer runs.mu.Unlock()
	of := runs.of[key]
	if of == nil {
		of = &runsOfOne{}
		runs.of[key] = of
	}
	of.attempts++
	of.number++
	n := &run{key: key, of: of, number: of.number, answered: make(chan struct{}), before: of.given}
	n.asked = of.asked.PushBack(n)
	return n
}

// runsOf returns what the runs of a rule's attempts are counted under; nil if they are not counted. Requests
// give back units of their own accord only where there is a Failed. Permits come back whatever it says.
func runsOf(r *Rule) any {
	traits := r.Guard.Traits()
	if _, holds := r.Guard.(kit.Holder); r.Failed == nil || traits.KeepsOutcome || holds {
		return nil
	}
	if reflect.TypeOf(r.Guard).Kind() == reflect.Pointer {
		return r.Guard
	}
	return new(byte) // a guard of the application that is no map's key: counted by itself where it is mounted
}

// answered notes what the entry's guard has answered, if runs of its rule are counted.
func (e *entry) answered() {
	if e.run != nil {
		e.run.answer(&e.decision)
	}
}

// blocks reports whether requests that run in this process may be why the entry was refused: see run.blocks.
func (e *entry) blocks(cost int64) bool {
	return e.run != nil && e.run.blocks(cost, e.decision.Remaining)
}

// answer notes what the guard has answered.
func (n *run) answer(d *core.Decision) {
	runs.mu.Lock()
	defer runs.mu.Unlock()
	if n.asked != nil {
		n.of.asked.Remove(n.asked)
		n.asked = nil
		close(n.answered)
	}
	n.hold(d)
}

// hold notes what the attempt has taken. The caller holds the lock.
func (n *run) hold(d *core.Decision) {
	if d.Allowed && !d.Replayed && n.units == 0 {
		n.units = d.Attempt.Cost
		n.of.held += n.units
	}
}

// end notes that the attempt has ended, and that its units are back if they were given back. It may be called
// twice.
func (n *run) end() {
	if n.of == nil {
		return
	}
	n.answer(&core.Decision{})
	runs.mu.Lock()
	defer runs.mu.Unlock()
	n.of.held -= n.units
	n.of.given += n.units
	if n.of.attempts--; n.of.attempts == 0 {
		delete(runs.of, n.key)
	}
	n.of = nil
}

// blocks reports whether the attempt, which was refused, would have been allowed if requests of the actor
// that run in this process had taken nothing. It waits for the answers to attempts that were made before.
func (n *run) blocks(cost, remaining int64) bool {
	runs.mu.Lock()
	defer runs.mu.Unlock()
	var patience *time.Timer
	for last := n.of.number; ; {
		theirs := n.of.held + n.of.given - n.before
		blocked := theirs > 0 && theirs >= max(cost, 1)-remaining
		first := n.of.asked.Front()
		if blocked || first == nil || first.Value.(*run).number > last {
			return blocked
		}
		if patience == nil {
			patience = time.NewTimer(answersMost)
			defer patience.Stop()
		}
		if !waitUnlocked(first.Value.(*run).answered, patience) {
			return true // in doubt it counts against nobody
		}
	}
}

// waitUnlocked waits for an answer, without the lock that the caller holds, and reports whether it came in
// time.
func waitUnlocked(answered <-chan struct{}, patience *time.Timer) bool {
	runs.mu.Unlock()
	defer runs.mu.Lock()
	select {
	case <-answered:
		return true
	case <-patience.C:
		return false
	}
}

// soon makes a refusal one after which units may be back in a moment, although those that the guard knows of
// are not.
func soon(d *core.Decision) {
	if d.ResetAfter == d.RetryAfter {
		d.ResetAfter = min(d.ResetAfter, underWayRetry)
	}
	d.RetryAfter = min(d.RetryAfter, underWayRetry)
}
