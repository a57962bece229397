package core

import "context"

// Guard decides attempts. The guards of an [Engine] implement it, and so can an application's own guards.
// Implementations must be safe for concurrent use.
type Guard interface {
	// Name returns the guard's name, which is unique in its engine.
	Name() string

	// Check decides one attempt. When it allows the attempt, it takes what the attempt asks for.
	//
	// When Check returns an error, the attempt is undecided. errors.Is(err, ErrInvalid) distinguishes a mistake
	// of the caller from a Redis that did not answer. The Decision beside an error names the guard and holds the
	// attempt with its operation ID, so that the caller can repeat the call.
	//
	// A claim may have been made although its answer did not arrive in time. The guard undoes such a claim in
	// the background as far as possible. A grabbed share of a red packet stays grabbed. It is always safe to
	// repeat a call with the same operation ID.
	Check(ctx context.Context, a Attempt) (Decision, error)

	// Settle tells the guard how an allowed attempt ended, after the work. It takes nothing: Check took. A
	// rule calls it by itself, unless its handler has called pipeline.Take. [Commit] and [CommitWith] spend
	// the units of the attempt, and [CommitCost] its real cost. [Rollback] gives the units back, as if the
	// attempt had never been made. A guard that cannot give anything back documents it. A denied decision has
	// nothing to settle. Settling twice has the effect of settling once.
	//
	// Settle takes no notice of the end of ctx, and takes no longer than ten times the engine's deadline for a
	// call to Redis. So it may be deferred: defer g.Settle(ctx, d, core.Rollback).
	//
	// Several calls of Check with one operation ID, such as retries of a client, share one claim. The claim is
	// given back only when all callers that were told of it have rolled back. So the failure of one caller
	// does not take the claim from another.
	Settle(ctx context.Context, d Decision, end Ending) error

	// Traits tells an adapter how to treat the guard where its rule does not say.
	Traits() Traits
}

// Traits is what an adapter must know about a guard.
type Traits struct {
	// NeedsResource reports whether an attempt without a resource is invalid.
	NeedsResource bool
	// NeedsItem reports whether an attempt without an item is invalid.
	NeedsItem bool
	// NeedsID reports whether an attempt without an operation ID is invalid.
	NeedsID bool
	// KeepsOutcome reports whether the guard stores the outcome of an attempt and replays it. An adapter then
	// passes the outcome to Settle with [CommitWith], and sets the Item of the attempt to what makes a
	// repetition the same attempt.
	KeepsOutcome bool
	// Confirms reports whether a commit must succeed before a client is told of success, because Check only
	// reserves. An adapter then commits before it sends the header of a successful response, and sends a
	// refusal when the commit fails. When Confirms is false, the claim already counts after Check, and the
	// adapter may commit later.
	Confirms bool
	// MaxBody is how many bytes of a response's body the outcome holds.
	MaxBody int
	// KeepsOnFailure reports whether an attempt counts however its request ends, as with rate limits and red
	// packets. An adapter then rolls back only when a later rule denies the same request. When KeepsOnFailure
	// is false, a failed request gives back what it took.
	KeepsOnFailure bool
	// Spends reports whether the cost of an attempt may be an estimate: Settle takes [CommitCost] and corrects
	// it. When it is false, CommitCost is Commit. An adapter ignores it for a guard that Confirms.
	Spends bool
	// KeepsToken reports whether clients keep the Token of the guard's decisions, allowed or not. An adapter
	// passes it on, and gives it to the guard with the client's next attempt.
	KeepsToken bool
	// TokenInFrames reports whether browsers send that token in a frame of another site, too.
	TokenInFrames bool
	// Levels is how many levels the path has that the guard takes as the actor, as an organisation, a team and a
	// user. An adapter makes it of all but the last one, and the actor itself. Zero: the actor is no path.
	Levels int
	// Outage is the policy for attempts that the guard cannot decide.
	Outage Outage
	// Unit is what Decision.Limit and Decision.Remaining count, where clients can use these figures to pace
	// themselves: an adapter then sends them. It is empty where the figures mean nothing to clients, as with
	// votes and stocks.
	Unit string
}

// Outage is the policy for an attempt that a guard cannot decide because Redis does not answer.
type Outage int

const (
	// FailDefault uses the policy in the guard's [Traits].
	FailDefault Outage = iota
	// FailClosed denies the attempt.
	FailClosed
	// FailOpen lets the attempt pass unguarded.
	FailOpen
	// FailLocal asks a kit.LocalGuard, which decides inside the process. Rate limits and semaphores are local
	// guards. Guards of things that must be unique across processes, such as locks, votes and sales, cannot
	// be.
	FailLocal
)
