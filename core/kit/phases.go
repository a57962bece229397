package kit

import (
	"context"
	"reflect"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
)

// This file lets guards whose checks have two phases share a trip to Redis.

// Phased is a guard whose checks have two phases, with the call to Redis in between. So an adapter can send
// the calls of several guards about one request together. A [Base] has Observe.
//
// An adapter begins the checks of a request in the order of its rules, for as long as each of them is
// Batchable. It sends their calls by one [script.Send], and ends them in the same order. Any other check is
// sent alone, after the checks in front have ended. The checks behind it are begun when it has ended. If a
// guard refuses, the adapter rolls back the claims of guards behind it. So a claim must not be batchable if
// it makes others hear a final refusal, such as duplicate or sold out.
type Phased interface {
	core.Guard

	// Phases returns the guard itself, and whether it may join a batch. If not, Check has to decide. A guard
	// that embeds another guard with Phases returns the embedded one, and so is not taken for it: see
	// [PhasesOf].
	Phases() (self Phased, joins bool)

	// Begin prepares a check. It takes nothing. notFirst reports whether checks in front have not ended.
	// notLast reports whether further checks are behind, which join the batch if this one is batchable.
	Begin(ctx context.Context, a core.Attempt, notFirst, notLast bool) Prepared

	// BeginSettle prepares what Settle does with an ending that gives back or charges something. A guard whose
	// Traits say KeepsOnFailure need not be told of others, and replays no decision.
	BeginSettle(ctx context.Context, d core.Decision, end core.Ending) Prepared

	// Observe tells the guard's observer of a decision or of an ending: see [Base.Observe].
	Observe(ctx context.Context, op string, begun time.Time, d core.Decision, err error) error
}

// PhasesOf returns the guard as a [Phased] one, or nil, and whether it may go along with others.
func PhasesOf(g core.Guard) (p Phased, joins bool) {
	p, ok := g.(Phased)
	if !ok || !reflect.ValueOf(g).Comparable() {
		return nil, false
	}
	if p, joins = p.Phases(); core.Guard(p) != g {
		return nil, false
	}
	return p, joins
}

// Prepared is a check, or an ending, between its phases. Exactly one of End and Drop has to be called.
type Prepared struct {
	// Call has to be sent before End. It is nil where End needs none, or makes its calls itself.
	Call *script.Call
	// Batchable reports whether checks of other guards may go along: this one expects to allow its attempt,
	// and to leave enough for others.
	Batchable bool

	Finisher
}

// Finisher is the second phase of a check or an ending.
type Finisher interface {
	// End returns the decision, as Check returns it, or the error of Settle. It may make further calls. The
	// observer is not told: whoever calls End does that, if the answer counts.
	End(ctx context.Context) (core.Decision, error)
	// Drop ends a check whose call was not sent.
	Drop()
}

// InTurn sends the call of a check, or of an ending, by itself, and ends it. A [Phased] guard makes its
// Check and its Settle of it:
//
//	begun := time.Now()
//	d, err := kit.InTurn(ctx, g.Begin(ctx, a, false, false))
//	return d, g.Observe(ctx, "check", begun, d, err)
func InTurn(ctx context.Context, b Prepared) (core.Decision, error) {
	if b.Call != nil {
		script.Send(ctx, b.Call)
	}
	return b.End(ctx)
}
