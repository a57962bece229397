package kit

import (
	"context"
	"fmt"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
)

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

// LocalGuard is a guard that can decide without Redis, for one process alone: the rate limits and the
// semaphores.
type LocalGuard interface {
	core.Guard

	// CheckLocal is Check without Redis, for an outage: it decides an attempt by what this process knows of
	// the actor. It is not a faster Check for normal times: with n processes behind a load balancer, up to n
	// times the limit passes. Rules call it under [core.FailLocal], and other callers after an error of Check.
	CheckLocal(ctx context.Context, a core.Attempt) (core.Decision, error)
}

// Waiter is a guard whose attempts can wait until they are allowed: the rate limits.
type Waiter interface {
	LocalGuard

	// Wait is Check for a caller that waits until the attempt is allowed: see limit.SlidingWindow.Wait. An
	// attempt that is not allowed has an error, which is a [core.Refused] where the guard has decided so.
	Wait(ctx context.Context, a core.Attempt) (core.Decision, error)
	// WaitLocal is Wait without Redis: see CheckLocal.
	WaitLocal(ctx context.Context, a core.Attempt) (core.Decision, error)
}

// Recaller is a guard, or the bans of a rule, that remembers refusals inside the process. If a request has
// to pass several guards, an adapter asks all of their memories before the first guard takes anything. So a
// flood that a later guard refuses does not make the earlier ones take and give back.
type Recaller interface {
	// Recall returns the refusal that Check would return for the attempt from memory, and reports whether there
	// is one. It takes nothing, sends nothing to Redis, and returns no error: false means that Check has to
	// decide. A refusal that it returns has been observed as one of Check. It may be called for an attempt that
	// Check is called for next.
	Recall(ctx context.Context, a core.Attempt) (d core.Decision, ok bool)
}

// Holder is a guard whose claims can be lost while the attempt goes on, as those under a lease can.
type Holder interface {
	// Hold returns a context for the work of an allowed attempt. It ends when the claim is lost, with a cause
	// that says so (see context.Cause), and when ctx ends. Call stop when the work is done, which ends the
	// context. Hold is not a claim: the decision has to be settled as any other.
	//
	// An adapter passes this context to the handler of a request, unless the attempt is in the shadow. It need
	// not call stop where ctx ends with the request.
	Hold(ctx context.Context, d core.Decision) (held context.Context, stop context.CancelFunc)
}

// Claimed returns the claim that guard b needs to settle d. It returns an [core.ErrInvalid] unless b's Check
// allowed the attempt in this process.
func Claimed[T any](b *Base, d core.Decision) (claim T, err error) {
	claim, ok := core.ClaimOf[T](d)
	if !ok || d.Guard != b.name || !d.Allowed {
		return claim, fmt.Errorf("%w: this guard's Check did not allow the attempt in this process",
			core.ErrInvalid)
	}
	return claim, nil
}

// TagOf returns the tag of an attempt: its actor, or its resource and actor if it has a resource.
func TagOf(a core.Attempt) string {
	if a.Resource == "" {
		return script.Encode(a.Actor)
	}
	return script.JoinTag(script.Encode(a.Resource), script.Encode(a.Actor))
}

// Refused reports a request that an adapter has refused without a decision of the guard. The observer of
// the guard's engine gets an [core.Event] with the Op refuse. The event has the guard's name, the reason,
// and whether the refusal is in the shadow, all from d. It has no texts of the attempt, since clients
// choose them. key and function become the event's Key and Function. A guard without an engine has no
// observer.
func Refused(ctx context.Context, guard any, d core.Decision, key, function string) {
	own, ok := guard.(interface{ Engine() *core.Engine })
	if !ok || own.Engine() == nil {
		return
	}
	d.Attempt = core.Attempt{Shadow: d.Attempt.Shadow}
	own.Engine().Observe(ctx, core.Event{Guard: d.Guard, Op: "refuse", Decision: d, Key: key,
		Function: function})
}
