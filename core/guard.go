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
	// the background as far as possible; a grabbed share of a red packet stays grabbed. It is always safe to
	// repeat a call with the same operation ID.
	Check(ctx context.Context, a Attempt) (Decision, error)

	// Settle tells the guard how an allowed attempt ended. [Commit] and [CommitWith] spend what the attempt
	// took, and [CommitCost] what it has really cost. [Rollback] gives it back, as if the attempt had never been
	// made; a guard that cannot give anything back documents it. A denied decision has nothing to settle.
	// Settling twice has the effect of settling once.
	//
	// Several calls of Check with one operation ID, such as retries of a client, share one claim. The claim is
	// given back only when all callers that were told of it have rolled back, so that the failure of one caller
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
	// refusal when the commit fails. When Confirms is false, what Check took already counts, and the adapter
	// may commit later.
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
	// Phases is the guard itself, if it is [Phased] and may go along with others: an adapter then begins and
	// ends its checks, together with those of other rules, instead of calling Check. Nil: Check decides. A guard
	// that embeds one with Phases is not what this names, so its own Check is called.
	Phases Phased
	// Outage is the policy for attempts that the guard cannot decide.
	Outage Outage
	// Unit is what Decision.Limit and Decision.Remaining count, where clients can use these figures to pace
	// themselves: an adapter then sends them. It is empty where the figures mean nothing to clients, as with
	// votes and stocks.
	Unit string
}

// Units that the guards count, by the names that the RateLimit header fields use. An application's own guards
// may use others.
const (
	// UnitRequests is the unit of rate limits, whatever the cost of a request.
	UnitRequests = "requests"
	// UnitItems is the unit of quotas: requests for different items. Requests for an item that has been counted
	// are free. The RateLimit header fields do not define this name.
	UnitItems = "items"
	// UnitConcurrentRequests is the unit of semaphores: requests that run at the same time.
	UnitConcurrentRequests = "concurrent-requests"
)

// Outage is the policy for an attempt that a guard cannot decide because Redis does not answer.
type Outage int

const (
	// FailDefault uses the policy in the guard's [Traits].
	FailDefault Outage = iota
	// FailClosed denies the attempt.
	FailClosed
	// FailOpen lets the attempt pass unguarded.
	FailOpen
	// FailLocal asks a [LocalGuard], which decides inside the process. Rate limits and semaphores are local
	// guards. Guards of what must be unique across processes, such as locks, votes and sales, cannot be.
	FailLocal
)

// LocalGuard is a guard that can decide without Redis, for one process alone: the rate limits and the
// semaphores.
type LocalGuard interface {
	Guard

	// CheckLocal decides an attempt by what this process knows of the actor, because Redis does not answer. With
	// n processes behind a load balancer, up to n times the limit passes.
	CheckLocal(ctx context.Context, a Attempt) (Decision, error)
}

// Recaller is a guard, or the bans of a rule, that remembers refusals inside the process. Where a request has
// to pass several guards, an adapter asks all of them what they remember before it lets the first one take
// anything. Thus a flood that a later guard refuses does not make the earlier ones take and give back.
type Recaller interface {
	// Recall returns the refusal that Check would return for the attempt from memory, and reports whether there
	// is one. It takes nothing, sends nothing to Redis, and returns no error: false means that Check has to
	// decide. A refusal that it returns has been observed as one of Check. It may be called for an attempt that
	// Check is called for next.
	Recall(ctx context.Context, a Attempt) (d Decision, ok bool)
}

// Holder is a guard whose claims can be lost while the attempt goes on, as those under a lease can.
type Holder interface {
	// Hold returns a context for the work of an allowed attempt. It ends when the claim is lost, with a cause
	// that says so (see context.Cause), and when ctx ends. Call stop when the work is done; the context is over
	// then. Hold is not a claim: the decision has to be settled as any other.
	//
	// An adapter passes this context to the handler of a request, unless the attempt is in the shadow. It need
	// not call stop where ctx ends with the request.
	Hold(ctx context.Context, d Decision) (held context.Context, stop context.CancelFunc)
}
