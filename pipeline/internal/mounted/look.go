package mounted

import (
	"context"
	"errors"
	"net/http"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/internal/warn"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
	"github.com/gatehouse-go/gatehouse/pipeline/rule"
)

// View is what a rule makes of a request before its bans and its guard are asked.
type View struct {
	Verdict Verdict
	Cohort  rule.Cohort
	Attempt core.Attempt
	Refusal *answers.Refusal // if the rule refuses
	Err     error            // why
}

// Verdict says what follows from a view.
type Verdict uint8

// The verdicts of a rule.
const (
	Unseen    Verdict = iota // the rule has not looked at the request
	Asks                     // the rule's bans and its guard have to be asked
	Preflight                // a preflight passes unless the bans refuse it
	Passes                   // undecided: by a list or a Rollout, or because there is nobody to count
	Refuses                  // by a list, or because no attempt could be made
)

// Look goes through the rule's stages, unless that was done before. It is done once per request, because
// functions of the application take part. The context is for what is logged.
func (r *Rule) Look(ctx context.Context, req *keyfuncs.Request, v *View) {
	if v.Verdict != Unseen {
		return
	}
	req.Logger = r.Source.Logger
	for _, stage := range r.stages {
		switch stage {
		case stageRollout:
			v.Cohort = r.Rollout.Of(r.Name, func() (string, error) { return r.actor(req) })
			if v.Attempt.Shadow = v.Cohort == rule.CohortShadowed; v.Cohort == rule.CohortSkipped {
				v.Verdict = Passes
			}
		case stageLists:
			r.lists(ctx, req, v)
		case stagePreflight:
			if req.Method == http.MethodOptions && isPreflight(req.Request) {
				r.preflight(ctx, req, v)
			}
		case stageAttempt:
			r.makeAttempt(ctx, req, v)
		}
		if v.Verdict != Unseen {
			return
		}
	}
}

// refuse is for a rule that refuses without its guard.
func (v *View) refuse(refusal *answers.Refusal, err error) {
	v.Verdict, v.Refusal, v.Err = Refuses, refusal, err
}

// lists applies the rule's lists. Deny takes precedence.
func (r *Rule) lists(ctx context.Context, req *keyfuncs.Request, v *View) {
	field := "deny"
	listed, err := contains(r.Deny, req)
	if listed {
		v.refuse(r.Refuse(answers.ReasonDenied, core.Decision{Guard: r.Name}), &keyError{field: "deny"})
		return
	}
	if err == nil {
		field = "allow"
		if listed, err = contains(r.Allow, req); listed {
			v.Verdict = Passes
		}
	}
	if err != nil {
		err = &keyError{field, err}
		v.refuse(r.RefuseKey(ctx, err), err)
	}
}

// contains reports whether the request is in the list, which may be nil.
func contains(list *keyfuncs.List, req *keyfuncs.Request) (bool, error) {
	if list == nil {
		return false, nil
	}
	return list.Contains(req)
}

// isPreflight reports whether an OPTIONS request is a CORS preflight as browsers send it (Fetch standard,
// section "CORS-preflight fetch"): without a body and without credentials. A request that has either is none,
// so that nobody who is logged in passes the rules by calling a request a preflight.
func isPreflight(r *http.Request) bool {
	h := r.Header
	return h.Get("Origin") != "" && h.Get("Access-Control-Request-Method") != "" && r.ContentLength == 0 &&
		h.Get("Cookie") == "" && h.Get("Authorization") == ""
}

// preflight decides for a CORS preflight: see Rule.CountPreflights.
func (r *Rule) preflight(ctx context.Context, req *keyfuncs.Request, v *View) {
	switch {
	case !r.Traits.KeepsOnFailure || r.Traits.KeepsToken:
		warn.Preflight.Tell(ctx, r.Logger(), r.Name, "guard", r.Name)
		v.refuse(r.Refuse(answers.ReasonPreflight, core.Decision{Guard: r.Name}), &keyError{field: "preflight"})
	case r.Bans == nil:
		v.Verdict = Passes
	default:
		// A banned client may forge preflights. A real preflight has no credentials, so it may have no actor to
		// ask for.
		v.Verdict = Preflight
		var err error
		if v.Attempt.Actor, err = r.actor(req); err != nil {
			v.Verdict = Passes
		}
	}
}

// makeAttempt makes the attempt, for which the bans and the guard are asked.
func (r *Rule) makeAttempt(ctx context.Context, req *keyfuncs.Request, v *View) {
	a, err := r.attempt(req)
	a.Shadow = v.Attempt.Shadow
	switch v.Attempt = a; {
	case errors.Is(err, errNobody) && r.NoKey == rule.NoKeySkip:
		v.Verdict = Passes
	case err != nil:
		v.refuse(r.RefuseKey(ctx, err), err)
	default:
		v.Verdict = Asks
	}
}

// Trace reports a refusal that the guard has not decided to the observer. Without it, requests that
// lack a login would leave no trace.
func (r *Rule) Trace(ctx context.Context, v *View) {
	d := core.Decision{Guard: r.Name, Reason: v.Refusal.Reason,
		Attempt: core.Attempt{Shadow: v.Cohort == rule.CohortShadowed}}
	kit.Refused(ctx, r.Guard, d, keyOf(v.Err), keyfuncs.FunctionOf(v.Err))
}
