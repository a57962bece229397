package histories

import (
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/lock"
)

type lockIn struct {
	Op   string // take, give, look
	Call int
}

type lockOut struct {
	Reason core.Reason
	Owner  string
	Fence  int64
}

type lockState struct {
	holder int   // the call that has the lock, and 1; 0: nobody
	grants int64 // that have been
	first  int64 // the fence of the first; 0: not known yet
	dead   set   // calls that were given back before they arrived
}

// lockModel knows that the clock stands still in a history, so each fence is one more than the last.
var lockModel = deterministic(func(s lockState, in, out any) (bool, lockState) {
	op := in.(lockIn)
	answer, known := out.(lockOut)
	switch op.Op {
	case "take":
		switch {
		case s.dead.has(op.Call): // too late
			return !known, s
		case s.holder != 0:
			return !known || answer.Reason == core.ReasonBusy, s
		}
		s.holder, s.grants = op.Call+1, s.grants+1
		return !known || answer.Reason == core.ReasonOK && s.isLast(answer.Fence), s
	case "give":
		if s.holder == op.Call+1 {
			s.holder = 0
		} else {
			s.dead = s.dead.with(op.Call)
		}
	case "look":
		owner := ""
		if s.holder != 0 {
			owner = lockOwner(s.holder - 1)
		}
		return !known || answer.Owner == owner && s.isLast(answer.Fence), s
	}
	return true, s
})

// isLast reports whether this can be the last fence. The first one that is known says what the others are.
func (s *lockState) isLast(fence int64) bool {
	if s.grants == 0 {
		return fence == 0
	}
	if s.first == 0 {
		s.first = fence - s.grants + 1
	}
	return s.first > 0 && fence == s.first+s.grants-1
}

func lockOwner(call int) string { return fmt.Sprint("op ", call) }

// locks have leases that outlast a history, and nobody waits: an attempt that waits is more than one call.
func locks() subject {
	return subject{name: "lock", model: lockModel, single: true,
		open: func(t *testing.T, w *world) (func(*history) error, func(*caller, int)) {
			var guards []*lock.Guard
			for _, e := range w.engines {
				guards = append(guards, lock.New(e, "lock", lock.Options{Lease: time.Hour}))
			}
			return func(*history) error { return nil }, func(c *caller, process int) {
				lockCall(t, c, guards[process])
			}
		}}
}

// lockCall takes the lock, and mostly gives it back; or it asks who has it.
func lockCall(t *testing.T, c *caller, g *lock.Guard) {
	n, ok := c.next()
	if !ok {
		return
	}
	if c.rng.IntN(6) == 0 {
		c.do(lockIn{Op: "look", Call: n}, func() (any, error) {
			s, err := g.Peek(t.Context(), c.name)
			return lockOut{Owner: s.Owner, Fence: s.Fence}, err
		})
		return
	}
	take, give := lockIn{Op: "take", Call: n}, lockIn{Op: "give", Call: n}
	var d core.Decision
	known := c.do(take, func() (_ any, err error) {
		d, err = g.Check(t.Context(), core.Attempt{Actor: lockOwner(n), Resource: c.name})
		fence, _ := g.Fence(d)
		return lockOut{Reason: d.Reason, Fence: fence}, err
	})
	switch {
	case !known:
		c.later(give)
	case !d.Allowed:
		c.sentTwice(take, give)
	case c.rng.IntN(24) > 0:
		c.do(give, func() (any, error) { return nil, g.Settle(t.Context(), d, core.Commit) })
	}
}
