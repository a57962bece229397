package core

import (
	"errors"
	"fmt"

	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/backlog"
)

var (
	// ErrInvalid is wrapped by the errors of attempts and calls that make no sense, such as an attempt without
	// an actor. It is a mistake of the caller or of the caller's client: a repetition gets the same error.
	ErrInvalid = errors.New("core: invalid attempt")
	// ErrNotFound is the kind of errors that say that a call names something that does not exist, such as
	// seckill.ErrNoSale.
	ErrNotFound = errors.New("core: not found")
	// ErrNotNow is the kind of errors that say that a call by name is not possible now, such as
	// seckill.ErrTooFewLeft.
	ErrNotNow = errors.New("core: not possible now")
	// ErrGone is wrapped by the error of Settle when the claim no longer exists: the reservation has ended and
	// its units were taken, or another attempt has begun the operation since.
	ErrGone = errors.New("core: the claim is gone")
	// ErrUndecided is wrapped by the error of [Do] when the guard could not decide, as when Redis does not
	// answer. The work was not done.
	ErrUndecided = errors.New("core: the guard cannot decide")
	// ErrDrained is returned by calls that waited for a limit when [Drain] ended their wait. Nothing was taken.
	ErrDrained = errors.New("core: drained while it waited")
)

// Refused is the error of an attempt that a guard has not allowed, where the caller did not ask for the
// decision: see [Do], and limit.SlidingWindow.Wait. Find it with errors.As.
type Refused struct{ Decision } //nolint:errname // it is the decision of a guard, not a failure

// Error implements error. The text has nothing that a client chose.
func (r *Refused) Error() string {
	text := fmt.Sprintf("core: guard %q refuses the attempt: %s", r.Guard, r.Reason)
	if r.RetryAfter > 0 {
		text += fmt.Sprintf(", retry after %v", r.RetryAfter)
	}
	return text
}

// The errors of calls to Redis, as package script has them.
var (
	// ErrBreakerOpen is wrapped by the errors of calls that were not sent because earlier calls failed: see
	// [WithBreaker]. Nothing was taken, decided or given back. An adapter applies the rule's [Outage] policy,
	// as for any error of Redis.
	ErrBreakerOpen = script.ErrBreakerOpen
	// ErrNoRedis is wrapped by the errors of scripts that an engine without Redis was asked to run.
	ErrNoRedis = script.ErrNoRedis
	// ErrUnconfirmed is returned by calls that wait for replicas, when too few of them have the change in time.
	// It is safe to repeat the call with the same arguments. See seckill.Acked.
	ErrUnconfirmed = script.ErrUnconfirmed
)

// PendingMost is the number of claims that a process can have running or waiting to be settled at the same
// time. A claim takes a place before its guard is asked. So during a long outage new claims are rejected,
// and no earlier claim is forgotten. Rate limits take no place: they continue, and units that they cannot
// give back are reported to the engine's observer.
const PendingMost = backlog.Most

var (
	// ErrTooManyPending is returned when a claim is rejected because [PendingMost] attempts are running or
	// waiting to be settled. Nothing was taken.
	ErrTooManyPending = errors.New("core: too many attempts are waiting to be settled")
	// ErrUnsettled is wrapped by the error that an engine's observer gets when the engine gave up telling a
	// guard how an attempt ended, or gave up undoing an attempt that may have been made.
	ErrUnsettled = errors.New("core: gave up settling the attempt")
)
