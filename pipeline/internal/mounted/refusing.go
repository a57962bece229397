package mounted

import (
	"context"
	"errors"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// RefuseKey refuses a request out of which no attempt could be made.
func (r *Rule) RefuseKey(ctx context.Context, err error) *answers.Refusal {
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
		r.logins.missed(ctx, &r.Source, err)
	default: // a function of the application failed, which is not the client's fault
		r.logFailure(ctx, err)
	}
	refusal := r.Refuse(reason, core.Decision{Guard: r.Name})
	if reason == answers.ReasonNoKey {
		refusal.Missing = keyfuncs.FieldOf(err)
	}
	return refusal
}

// logFailure logs that a key function of the application failed: of each kind the first failure, and then one
// per minute, since each request may cause one.
func (r *Rule) logFailure(ctx context.Context, err error) {
	if skipped, ok := r.failures.Due(failure{keyOf(err), keyfuncs.FunctionOf(err)}); ok {
		r.Logger().ErrorContext(ctx, "gatehouse: a key function failed", "guard", r.Name, "err", err,
			"failures_not_logged", skipped)
	}
}
