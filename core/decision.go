package core

import (
	"sync/atomic"
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

	// Choices are the voter's votes that stand in this poll, the newest last. Votes only.
	Choices []string
	// State is what has become of the reservation. Seckill only.
	State State
	// Amount is what the user has got of the packet, in minor units: by this attempt when allowed, by an earlier one when
	// refused as ReasonDuplicate. Red packets only.
	Amount int64

	// Outcome is how the operation ended, when refused as ReasonDone. Whoever settles an allowed decision sets it before, to have it
	// kept. Idempotency only.
	Outcome *Outcome

	// limits are those that decided a rate limit attempt; stamp says when an admitted one took its units.
	stamp  int64
	limits *limitSet
	// parts is in how many parts the poll was divided when a vote was cast.
	parts int
	// span is the period that a quota counts an attempt in.
	span span
	// local is set where this process decided alone: whether what was taken has been given back.
	local *atomic.Bool
}

// Limits returns all limits of the rate limit that decided, of which the one with the decision's Window speaks; nil for other
// guards. The slice is the guard's: it must not be changed.
func (d Decision) Limits() []Limit {
	if d.limits == nil {
		return nil
	}
	return d.limits.limits
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

// State is what has become of a reservation.
type State string

// The states of a reservation. One that is cancelled has none.
const (
	// StateHeld: units are set aside until the reservation is confirmed, cancelled or its time is over.
	StateHeld State = "held"
	// StateSold: confirmed.
	StateSold State = "sold"
)
