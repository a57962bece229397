package core

import (
	"fmt"
	"time"
)

// Decision is a guard's answer to one attempt.
type Decision struct {
	// Guard is the name of the guard that decided.
	Guard string
	// Attempt is what was decided, with its cost and operation ID filled in.
	Attempt Attempt
	// Allowed reports whether the attempt may go on.
	Allowed bool
	// Reason says why: ReasonOK when allowed, or ReasonAgain, or ReasonChanged.
	Reason Reason
	// Source says who decided. It is empty beside an error, and where nobody had to be asked, as for ReasonOverLimit.
	Source Source
	// Replayed reports whether this is the stored answer to an earlier attempt with the same operation ID: nothing was
	// taken this time.
	Replayed bool

	// Limit and Remaining are, for a rate limit, the units of the limit that speaks and what is left of them; for Votes
	// the votes that a voter has in the poll and those left; for Quota the different items of a period; for Seckill the
	// stock and what is left of it, in a sale of several buckets that of the buyer's bucket, which changes as stock moves; for
	// RedPacket the shares and those left.
	Limit, Remaining int64
	// Window is the length of the limit that speaks, for Quota that of the period; zero for guards without one.
	Window time.Duration
	// RetryAfter is how long to wait until the same attempt can succeed; zero when allowed, or when waiting is no help.
	RetryAfter time.Duration
	// ResetAfter is, for a rate limit, how long until units come back for sure: the window when allowed, RetryAfter when
	// refused. For Quota it is how long the period still is, for Seckill how long the reservation waits to be confirmed.
	ResetAfter time.Duration

	claim any
}

// Policy is one of the limits that a guard has: at most Max units in any Window.
type Policy struct {
	Max    int64
	Window time.Duration
}

// Policies returns all limits that the attempt had to fit, where the guard has several and says so, as rate limits do; the binding one is
// the one with the decision's Window. Nil for other guards. The slice is the guard's: it must not be changed.
func (d Decision) Policies() []Policy {
	if c, ok := d.claim.(interface{ Policies() []Policy }); ok {
		return c.Policies()
	}
	return nil
}

// SetClaim has the decision carry what the guard that made it needs to settle or refund it, or tells of it by an accessor of its own, such
// as votes.Choices. Only guards call it; what it is nobody else needs to know.
//
// A claim stays inside the process: a decision that has been written down and read again elsewhere has none. So one rule holds for all
// guards: a decision is settled in the process whose Check has returned it. What another process has to end is ended by name, such
// as with seckill.Guard.Confirm, or by its lease.
func (d *Decision) SetClaim(claim any) { d.claim = claim }

// ClaimOf returns the claim that a guard has set, of the type that it sets; the zero value and false where there is none.
func ClaimOf[T any](d Decision) (claim T, ok bool) {
	claim, ok = d.claim.(T)
	return claim, ok
}

// Claimed returns the claim of an allowed decision of this guard, for settling it. A decision of another guard, or of another process, is an
// ErrInvalidAttempt.
func Claimed[T any](b *Base, d Decision) (claim T, err error) {
	claim, ok := d.claim.(T)
	if !ok || d.Guard != b.name || !d.Allowed {
		return claim, fmt.Errorf("%w: the decision is not one by which this guard's Check allowed an attempt in this process",
			ErrInvalid)
	}
	return claim, nil
}

// Reason says why an attempt was allowed or refused. Programs may switch on it.
type Reason string

// The reasons. Package nethttpmw maps them to statuses.
const (
	// ReasonOK: allowed.
	ReasonOK Reason = "ok"
	// ReasonLimited: a rate limit is used up; RetryAfter says until when.
	ReasonLimited Reason = "limited"
	// ReasonOverLimit: the cost alone is more than the rate limit, so waiting is no help.
	ReasonOverLimit Reason = "over_limit"
	// ReasonBanned: the actor is shut out because he was refused too often; RetryAfter says until when.
	ReasonBanned Reason = "banned"

	// ReasonDuplicate: this voter has voted, this buyer has all that one buyer may have, this user has a share of the packet.
	ReasonDuplicate Reason = "duplicate"
	// ReasonQuota: the voter has used all votes of a poll that gives several, or all of the day, and then RetryAfter says when
	// it ends; the actor has had all different items of the period, and RetryAfter says when it ends.
	ReasonQuota Reason = "quota"
	// ReasonNotOpen: the poll opens later; RetryAfter says when.
	ReasonNotOpen Reason = "not_open"
	// ReasonClosed: the poll or the sale is over, the packet has expired.
	ReasonClosed Reason = "closed"

	// ReasonChanged: allowed, and the voter's vote for another choice counts no more. See Poll.Change.
	ReasonChanged Reason = "changed"

	// ReasonAgain: allowed, for an item that has been counted in this period already, and nothing was taken.
	ReasonAgain Reason = "again"
	// ReasonDayRolled: the server's clock was in another period each time that it was asked, because one has just ended, or
	// because it jumps; asking again helps.
	ReasonDayRolled Reason = "day_rolled"

	// ReasonEarly: the sale opens later; RetryAfter says when.
	ReasonEarly Reason = "early"
	// ReasonSoldOut: fewer units are left than the attempt asks for.
	ReasonSoldOut Reason = "sold_out"
	// ReasonNotReady: there is no such sale or packet: never opened, or lost with its Redis. Never taken for a stock of any size.
	ReasonNotReady Reason = "not_ready"
	// ReasonUnconfirmed: too few replicas have got the reservation in time, see SeckillOptions.Durability. Asking again, with the
	// same operation ID, helps when they are back.
	ReasonUnconfirmed Reason = "unconfirmed"
	// ReasonGone: the reservation can not be confirmed: cancelled, never made, or over and its units taken. There is no such vote to
	// retract.
	ReasonGone Reason = "gone"

	// ReasonEmpty: all shares of the packet have been grabbed.
	ReasonEmpty Reason = "empty"

	// ReasonInProgress: an attempt with the same operation ID is running; RetryAfter says when to ask again.
	ReasonInProgress Reason = "in_progress"
	// ReasonDone: the operation has been done, and Decision.Outcome says how it ended.
	ReasonDone Reason = "done"

	// ReasonConflict: the operation ID belongs to another attempt, or the operation has ended another way.
	ReasonConflict Reason = "conflict"
)

// Source says who decided an attempt, for metrics: how many attempts reach Redis, how many do not.
type Source string

// The sources.
const (
	// SourceRedis: a script on Redis.
	SourceRedis Source = "redis"
	// SourceRemembered: this process, by what Redis has answered a moment ago: see WithRefusalMemory, Bans and Seckill.
	SourceRemembered Source = "remembered"
	// SourceLocal: this process alone, because Redis could not be asked (see LocalGuard), or the engine has none (see NewMemory).
	SourceLocal Source = "local"
)

// Ending is how an allowed attempt has ended, as Guard.Settle is told: Commit, CommitWith or Rollback. The zero value is Rollback.
type Ending struct {
	commit  bool
	outcome *Outcome
}

var (
	// Commit says that what the attempt took is spent.
	Commit = Ending{commit: true}
	// Rollback says that what the attempt took is to be given back, as if it had never been made.
	Rollback = Ending{}
)

// CommitWith is Commit, with the outcome that an OutcomeKeeper is to tell those who ask again.
func CommitWith(o *Outcome) Ending { return Ending{commit: true, outcome: o} }

// Commits reports whether the ending is Commit or CommitWith.
func (e Ending) Commits() bool { return e.commit }

// Outcome returns what CommitWith was given; nil for other endings.
func (e Ending) Outcome() *Outcome { return e.outcome }

// OutcomeOf returns how the operation has ended that a decision refuses as ReasonDone; nil for other decisions. Guards give it by a claim with a
// method Outcome.
func OutcomeOf(d Decision) *Outcome {
	if c, ok := d.claim.(interface{ Outcome() *Outcome }); ok && d.Reason == ReasonDone {
		return c.Outcome()
	}
	return nil
}

// Outcome is how an operation ended, for those who ask again. What it means is its users' to say: package nethttpmw keeps answers in
// it, a worker may keep its result.
type Outcome struct {
	// Status is the status of an HTTP answer; zero: there is none that could be given again.
	Status int `json:"status,omitempty"`
	// Header has the fields of the answer's header that are kept, as UTF-8.
	Header map[string]string `json:"header,omitempty"`
	// Incomplete says that the operation is done, and that the rest of its answer was still to come when this was kept: there is no
	// answer that could be given again, unless a second Settle keeps it.
	Incomplete bool `json:"incomplete,omitempty"`
	// Body is kept up to IdempotencyOptions.MaxBody bytes; of a longer one nothing is.
	Body []byte `json:"-"`
}
