package pipeline

import (
	"context"
	"errors"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// refuseKey refuses a request out of which no attempt could be made.
func (r *mounted) refuseKey(ctx context.Context, err error) *answers.Refusal {
	reason := answers.ReasonUnavailable
	switch {
	case errors.Is(err, keyfuncs.ErrMalformed):
		reason = answers.ReasonMalformed
	case errors.Is(err, keyfuncs.ErrTooLarge):
		reason = answers.ReasonTooLarge
	case errors.Is(err, core.ErrInvalid): // such as any other error of Cost
		reason = answers.ReasonInvalid
	case errors.Is(err, keyfuncs.ErrMissing), errors.Is(err, keyfuncs.ErrRequired):
		reason = answers.ReasonNoKey
		r.logins.missed(ctx, r, err)
	default: // a function of the application failed, which is not the client's fault
		r.logFailure(ctx, err)
	}
	refusal := r.refuse(reason, core.Decision{Guard: r.name})
	if reason == answers.ReasonNoKey {
		refusal.Missing = keyfuncs.FieldOf(err)
	}
	return refusal
}

// failure is a kind of failure of a key function.
type failure struct{ key, function string }

// logFailure logs that a key function of the application failed: of each kind the first failure, and then one
// per minute, since each request may cause one.
func (r *mounted) logFailure(ctx context.Context, err error) {
	if skipped, ok := r.failures.Due(failure{keyOf(err), keyfuncs.FunctionOf(err)}); ok {
		r.logger().ErrorContext(ctx, "gatehouse: a key function failed", "guard", r.name, "err", err,
			"failures_not_logged", skipped)
	}
}

// traceRefusal reports a refusal that the guard has not decided to the observer. Without it, requests that
// lack a login would leave no trace.
func (r *mounted) traceRefusal(ctx context.Context, reason core.Reason, err error, shadow bool) {
	d := core.Decision{Guard: r.name, Reason: reason, Attempt: core.Attempt{Shadow: shadow}}
	kit.Refused(ctx, r.Guard, d, keyOf(err), keyfuncs.FunctionOf(err))
}
