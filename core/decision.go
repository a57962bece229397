package core

import (
	"time"
)

// Decision is a guard's answer to one [Attempt].
type Decision struct {
	// Guard is the name of the guard that decided.
	Guard string
	// Attempt is what was decided, with its cost and operation ID filled in.
	Attempt Attempt
	// Allowed reports whether the attempt may go on.
	Allowed bool
	// Replayed reports whether this is a replay: the stored answer to an earlier attempt with the same operation
	// ID. A replay takes nothing.
	Replayed bool
	// Kept reports, on a replay, that the work is done: do not do it again. An earlier attempt with this
	// operation ID ended in [Commit], or nothing can give it back any more. Votes and sales set it. It does
	// not say how long data stay in Redis: the option Keep of a guard does.
	Kept bool
	// Reason says why. The reasons of allowed attempts are ReasonOK, ReasonAgain and ReasonChanged.
	Reason Reason
	// Source says who decided. It is empty beside an error, and where the decision needed no counter, as for
	// ReasonOverLimit.
	Source Source

	// Limit and Remaining are the guard's figures:
	//
	//   - rate limits: the units of the binding limit, and those left
	//   - votes: the votes that a voter has in the poll, and those left
	//   - quotas: the different items of a period, and those left
	//   - sales: the stock, and the units left. In a sale of several buckets these are the figures of the
	//     buyer's bucket, which change as stock moves between buckets.
	//   - red packets: the shares, and those left
	//   - semaphores: the permits, and those that are free
	Limit, Remaining int64
	// Window is the length of the binding limit's window, for a quota that of the period. It is zero for other
	// guards.
	Window time.Duration
	// RetryAfter is how long to wait until the same attempt can succeed. It is zero when the attempt was
	// allowed, and when waiting does not help.
	RetryAfter time.Duration
	// ResetAfter is, for a rate limit, the time until the binding limit has a unit more than Remaining: when
	// its oldest unit leaves the window, when the next unit is in the bucket, or when the fixed window ends.
	// It is zero when all units are there, and RetryAfter when the attempt was denied. For a quota it is the
	// time until the period ends. For a sale it is how long the reservation can be confirmed. For an
	// idempotent operation, permits of a semaphore and a lock it is the lease.
	ResetAfter time.Duration

	// Token is text that the client keeps and sends with its next attempts, as Attempt.Token. It belongs to
	// the client alone: do not log it. Empty: the client keeps what it has. See Traits.KeepsToken.
	Token string

	claim any
}

// Policy is one of the limits of a guard: at most Max units in any Window.
type Policy struct {
	Max    int64
	Window time.Duration
	// Name tells the limit from the guard's others, where their windows do not, such as "org" and "user". The
	// fields below are set if it is.
	Name string
	// Remaining and ResetAfter are those of this limit: see Decision.
	Remaining  int64
	ResetAfter time.Duration
	// Binding reports that this limit has decided.
	Binding bool
}

// Policies returns all limits that applied to the attempt, for guards that have several, as rate limits do.
// The binding limit is the one with the decision's Window. Policies returns nil for other guards. The slice
// belongs to the guard: do not modify it.
func (d Decision) Policies() []Policy {
	if c, ok := d.claim.(interface{ Policies() []Policy }); ok {
		return c.Policies()
	}
	return nil
}

// SetClaim attaches a claim to the decision: the data that the guard needs to settle or refund it, or
// returns from an accessor of its own, such as votes.Choices. Only guards call SetClaim. A claim is opaque
// to everyone else.
//
// A claim stays inside the process: a decision that was serialized and read again has none. Therefore one
// rule holds for all guards: a decision is settled in the process whose Check returned it. Another process
// ends the attempt by name, for example with seckill.Guard.Confirm, or leaves it to the end of the lease.
func (d *Decision) SetClaim(claim any) { d.claim = claim }

// ClaimOf returns the claim of a decision, if the guard has set one of type T. Otherwise it returns the zero
// value and false.
func ClaimOf[T any](d Decision) (claim T, ok bool) {
	claim, ok = d.claim.(T)
	return claim, ok
}

// Reason says why an attempt was allowed or denied. Programs may switch on it.
type Reason string

// The reasons. Package pipeline maps them to HTTP statuses.
const (
	// ReasonOK: allowed.
	ReasonOK Reason = "ok"
	// ReasonLimited: a rate limit is used up. RetryAfter says for how long. Or too many attempts of the actor
	// wait for a semaphore or a lock.
	ReasonLimited Reason = "limited"
	// ReasonOverLimit: the cost alone exceeds the rate limit, so waiting does not help.
	ReasonOverLimit Reason = "over_limit"
	// ReasonBusy: as many run at the same time as may, or somebody else holds the lock. RetryAfter says when the
	// first of them has ended at the latest, if it has died. See packages semaphore and lock.
	ReasonBusy Reason = "busy"
	// ReasonBanned: the actor is banned because they were refused too often. RetryAfter says for how long.
	ReasonBanned Reason = "banned"

	// ReasonDuplicate: the voter has voted, the buyer has all that one buyer may have, or the user has a share
	// of the packet.
	ReasonDuplicate Reason = "duplicate"
	// ReasonQuota: the voter has used all votes of a poll that gives several, or all votes of the day; or the
	// actor has had all different items of the period. RetryAfter says how long the day or period still lasts.
	// For idempotency: the actor has stored as much as allowed, and RetryAfter says when there is room.
	ReasonQuota Reason = "quota"
	// ReasonNotOpen: the poll opens later. RetryAfter says when.
	ReasonNotOpen Reason = "not_open"
	// ReasonClosed: the poll or the sale is over, or the packet has expired.
	ReasonClosed Reason = "closed"

	// ReasonChanged: allowed, and the voter's vote for another choice no longer counts. See votes.Poll.Change.
	ReasonChanged Reason = "changed"

	// ReasonAgain: allowed, because the item has already been counted in this period. Nothing was taken.
	ReasonAgain Reason = "again"
	// ReasonDayRolled: each time that the server's clock was read, it was in another period, because a period
	// has just ended or because the clock jumps. A retry helps.
	ReasonDayRolled Reason = "day_rolled"

	// ReasonEarly: the sale opens later. RetryAfter says when.
	ReasonEarly Reason = "early"
	// ReasonSoldOut: fewer units are left than the attempt asks for.
	ReasonSoldOut Reason = "sold_out"
	// ReasonNotReady: there is no such sale or packet. It was never opened, or it was lost with its Redis, in
	// whole or in part. A missing sale never counts as a stock of any size. For idempotency: all that may be
	// stored is, and RetryAfter says when there is room.
	ReasonNotReady Reason = "not_ready"
	// ReasonUnconfirmed: too few replicas confirmed the reservation in time, see seckill.Options.Durability. A
	// retry with the same operation ID helps when the replicas are back.
	ReasonUnconfirmed Reason = "unconfirmed"
	// ReasonGone: the reservation cannot be confirmed, because it was cancelled, was never made, or has ended
	// and its units were taken. For votes: there is no such vote to retract.
	ReasonGone Reason = "gone"

	// ReasonEmpty: all shares of the packet have been grabbed.
	ReasonEmpty Reason = "empty"

	// ReasonInProgress: an attempt with the same operation ID is running, or, for votes and sales, 16 of them
	// have not been settled. RetryAfter says when to ask again.
	ReasonInProgress Reason = "in_progress"
	// ReasonDone: the operation is done. OutcomeOf returns how it ended.
	ReasonDone Reason = "done"

	// ReasonReplayed: the operation is done (see Decision.Kept), and the client gets status 200. It is the
	// reason of an answer, never that of a decision.
	ReasonReplayed Reason = "replayed"

	// ReasonDeferred: the request was refused for now, is stored, and runs later. The client gets status 202.
	// It is the reason of an answer, never of a decision.
	ReasonDeferred Reason = "deferred"

	// ReasonConflict: the operation ID belongs to another attempt, or the operation has ended in another way.
	ReasonConflict Reason = "conflict"
)

// Source says who decided an attempt. Metrics use it to show how many attempts reach Redis.
type Source string

// The sources.
const (
	// SourceRedis: a script on Redis.
	SourceRedis Source = "redis"
	// SourceRemembered: this process, by a recent answer of Redis. See [WithRefusalMemory].
	SourceRemembered Source = "remembered"
	// SourceLease: this process, with units that it fetched from Redis before. See package lease.
	SourceLease Source = "lease"
	// SourceLocal: this process alone, because Redis did not answer (see kit.LocalGuard) or the engine has none
	// (see [NewMemory]).
	SourceLocal Source = "local"
)

// Ending tells Guard.Settle how an allowed attempt ended: [Commit], [CommitWith], [CommitCost] or [Rollback].
// The zero value is Rollback.
type Ending struct {
	commit  bool
	revoke  bool
	outcome *Outcome
	costs   bool
	cost    int64
}

var (
	// Commit spends what the attempt took.
	Commit = Ending{commit: true}
	// Rollback gives back what the attempt took, as if it had never been made.
	Rollback = Ending{}
	// Revoke is Rollback for an attempt that was committed, where nobody was told so: the answer was not sent,
	// and will not be. A guard with Traits.Confirms that can gives back what it has confirmed, unless others
	// know of it. For a guard that makes no difference it is Rollback, which changes nothing after a commit.
	Revoke = Ending{revoke: true}
)

// CommitWith is [Commit] with an outcome, which a guard with Traits.KeepsOutcome replays to later attempts
// with the same operation ID.
func CommitWith(o *Outcome) Ending { return Ending{commit: true, outcome: o} }

// CommitCost is [Commit] with the real cost of the attempt, in the units of Attempt.Cost, which was an
// estimate. A guard with Traits.Spends gives the difference back, or charges it, once: the first ending
// that is not a plain Commit counts. For other guards it is Commit. A cost of more than [MaxAmount] is
// MaxAmount. A negative cost is an [ErrInvalid].
func CommitCost(actual int64) Ending {
	return Ending{commit: true, costs: true, cost: min(actual, MaxAmount)}
}

// Cost returns the cost given to CommitCost. ok is false for other endings.
func (e Ending) Cost() (actual int64, ok bool) { return e.cost, e.costs }

// Commits reports whether the ending is Commit, CommitWith or CommitCost.
func (e Ending) Commits() bool { return e.commit }

// Revokes reports whether the ending is Revoke.
func (e Ending) Revokes() bool { return e.revoke }

// Outcome returns the outcome given to CommitWith. It is nil for other endings.
func (e Ending) Outcome() *Outcome { return e.outcome }

// OutcomeOf returns the outcome of an operation that is done, from a decision whose reason is [ReasonDone].
// It returns nil for other decisions. A guard provides the outcome by a claim with a method Outcome.
func OutcomeOf(d Decision) *Outcome {
	if c, ok := d.claim.(interface{ Outcome() *Outcome }); ok && d.Reason == ReasonDone {
		return c.Outcome()
	}
	return nil
}

// Outcome is how an operation ended, for replays. Its users decide what it means: package pipeline keeps
// responses in it, and a worker may keep its result.
type Outcome struct {
	// Status is the status of an HTTP response. Zero means that there is no response to replay.
	Status int `json:"status,omitempty"`
	// Header holds the header fields of the response that are kept, as UTF-8.
	Header map[string]string `json:"header,omitempty"`
	// Incomplete reports that the operation is done but that its response is not whole: it was streamed, it is
	// longer than the guard keeps, or it was Pending and never came. There is no response to replay.
	Incomplete bool `json:"incomplete,omitempty"`
	// Pending reports that the operation is done and that its response is still being made: a second Settle
	// with the outcome that is known then replaces this one. Set Incomplete too, for the case that it is not
	// called. OutcomeOf never returns a Pending outcome.
	Pending bool `json:"-"`
	// Body is kept up to the MaxBody of the guard, in bytes. A longer body is not kept, and the outcome is
	// Incomplete.
	Body []byte `json:"-"`
}
