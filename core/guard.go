package core

import "context"

// Guard decides attempts. The guards of an Engine implement it; so may an application's own. Implementations must be safe
// for concurrent use.
type Guard interface {
	// Name is the guard's name, unique in its engine.
	Name() string

	// Check decides one attempt, and takes what it asks for when it is allowed. On an error nothing is known to have been
	// decided: errors.Is(err, ErrInvalidAttempt) tells the caller's mistakes from a Redis that could not be asked. The
	// Decision beside an error carries the guard's name and the attempt with its operation ID, for asking again.
	//
	// A claim whose answer did not come in time may have been made. The guard takes it back in the background, as well as it
	// can; what is grabbed of a red packet stays. Asking again, with the same operation ID, is safe at all times.
	Check(ctx context.Context, a Attempt) (Decision, error)

	// Settle tells the guard how an allowed attempt ended. ok: what it took is spent. Not ok: what it took is given back,
	// as if the attempt had never been; guards of which nothing can be given back say so. A refused decision has nothing to
	// settle. Settling twice is settling once.
	//
	// Several calls of Check with one operation ID, as from a client that tries again, share one claim: it is given back when
	// all who were told of it have settled as not ok, so nobody who was told yes loses it to another's failure.
	Settle(ctx context.Context, d Decision, end Ending) error

	// Traits tells an adapter how to treat the guard's rules where they do not say.
	Traits() Traits
}

// Traits is what an adapter has to know of a guard.
type Traits struct {
	// NeedsResource reports that an attempt without a resource is a mistake.
	NeedsResource bool
	// NeedsItem reports that an attempt without an item is a mistake.
	NeedsItem bool
	// NeedsID reports that an attempt without an operation ID is a mistake.
	NeedsID bool
	// KeepsOutcome reports that Settle wants to know in Decision.Outcome how the attempt ended, to answer repetitions with it, and
	// that the attempt's Item says what makes a repetition the same attempt.
	KeepsOutcome bool
	// Confirms reports that Settle with ok is a promise which has to be made before anybody is told yes: a reservation is not a sale
	// yet. An adapter settles before it lets the header of such an answer go, and answers with a refusal where that fails. Where it is
	// false, what Check took counts already, and Settle with ok may come later.
	Confirms bool
	// MaxBody is how many bytes of the body of an answer belong into the outcome.
	MaxBody int
	// KeepsOnFailure reports that an attempt counts however its request ends, as with rate limits and red packets: an adapter
	// gives back only when a later rule refuses the same request. Where it is false, a failed request gives back what it took.
	KeepsOnFailure bool
	// Outage is what to do when the guard can not decide.
	Outage Outage
	// Unit is what Decision.Limit and Remaining count, where clients may pace themselves by them: an adapter tells them then. Empty:
	// the figures are nothing for clients, as with votes and stocks.
	Unit string
}

// Units that the guards count, by the names that the RateLimit header fields have for them. An application's own guards may have
// others.
const (
	// UnitRequests is the unit of rate limits, whatever the cost of a request.
	UnitRequests = "requests"
	// UnitItems is the unit of Quota: requests for different items, of which the known ones are free. It is a name of our own.
	UnitItems = "items"
)

// Outage is what becomes of an attempt that a guard can not decide because Redis can not be asked.
type Outage int

const (
	// OutageDefault leaves it to the guard's Traits.
	FailDefault Outage = iota
	// OutageClosed refuses.
	FailClosed
	// OutageOpen lets the attempt pass unguarded.
	FailOpen
	// OutageLocal leaves it to a LocalGuard, which decides inside the process. Rate limits can; what must be unique across
	// processes, such as votes and sales, can not.
	FailLocal
)

// LocalGuard is a guard that can decide without Redis, for this process alone: the rate limits.
type LocalGuard interface {
	Guard

	// CheckLocal decides an attempt from what this process has let through, since Redis could not be asked. With n processes
	// behind a load balancer that is up to n times the limit, and never nothing.
	CheckLocal(ctx context.Context, a Attempt) (Decision, error)
}
