package pipeline

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"

	"github.com/gatehouse-go/gatehouse/pipeline/answers"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/internal/warn"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// prepared is what a rule makes of a request before it asks its bans and its guard, and what these say. It is
// made once per request, because functions of the application make it.
type prepared struct {
	done    bool
	cohort  cohort
	attempt core.Attempt
	refusal *answers.Refusal // by a list, or because no attempt could be made
	err     error            // why no attempt could be made
	passes  bool             // undecided: by a list, or because there is nobody to count
	only    bool             // a preflight: it passes unless the bans refuse it

	banned bool  // the entry's decision is that of the bans
	failed error // of the guard
}

// stage is a step in which a rule looks at a request, or asks its bans or its guard. A rule has the stages
// that it needs: a bare limit three. They are numbers rather than functions, so that what they fill in takes
// no allocation.
type stage uint8

const (
	stageRollout stage = iota
	stageLists
	stagePreflight
	stageAttempt // the last stage that prepares a rule
	stageBans
	stagePlace
	stageRun
	stageCheck
)

// stagesOf returns the stages that the rule needs.
func (r *mounted) stagesOf() []stage {
	return needed(map[stage]bool{
		stageRollout: r.Rollout != nil, stageLists: r.Deny != nil || r.Allow != nil,
		stagePreflight: !r.CountPreflights, stageAttempt: true, stageBans: r.Bans != nil,
		stagePlace: !r.traits.KeepsOnFailure, stageRun: r.runs != nil, stageCheck: true,
	})
}

// needed returns what is needed of all, in order.
func needed[T cmp.Ordered](all map[T]bool) []T {
	maps.DeleteFunc(all, func(_ T, needed bool) bool { return !needed })
	return slices.Sorted(maps.Keys(all))
}

// prepare fills in p, unless that was done before.
func (r *mounted) prepare(ctx context.Context, req *keyfuncs.Request, p *prepared) {
	if p.done {
		return
	}
	p.done = true
	req.Logger = r.source.Logger
	for _, stage := range r.stages {
		var over bool
		switch stage {
		case stageRollout:
			p.cohort = r.cohort(req)
			p.attempt.Shadow, over = p.cohort == cohortShadowed, p.cohort == cohortSkipped
		case stageLists:
			over = r.lists(ctx, req, p)
		case stagePreflight:
			if over = isPreflight(req.Request); over {
				r.preflight(ctx, req, p)
			}
		default:
			r.makeAttempt(ctx, req, p)
			over = true
		}
		if over {
			return
		}
	}
}

// lists applies the rule's lists. It reports whether they decide.
func (r *mounted) lists(ctx context.Context, req *keyfuncs.Request, p *prepared) bool {
	denied, allowed, err := r.listed(req)
	switch {
	case err != nil:
		p.refusal, p.err = r.refuseKey(ctx, err), err
	case denied:
		p.refusal, p.err = r.refuse(answers.ReasonDenied, core.Decision{Guard: r.name}), &keyError{field: "deny"}
	case allowed:
		p.passes = true
	default:
		return false
	}
	return true
}

// listed looks the request up in the rule's lists. Deny takes precedence.
func (r *mounted) listed(req *keyfuncs.Request) (denied, allowed bool, err error) {
	if r.Deny != nil {
		if denied, err = r.Deny.Contains(req); err != nil {
			return false, false, &keyError{"deny", err}
		}
	}
	if r.Allow != nil && !denied {
		if allowed, err = r.Allow.Contains(req); err != nil {
			return false, false, &keyError{"allow", err}
		}
	}
	return denied, allowed, nil
}

// isPreflight reports whether the request is a CORS preflight as browsers send it (Fetch standard, section
// "CORS-preflight fetch"): without a body and without credentials. A request that has either is none, so that
// nobody who is logged in passes the rules by calling a request a preflight.
func isPreflight(r *http.Request) bool {
	h := r.Header
	return r.Method == http.MethodOptions && h.Get("Origin") != "" &&
		h.Get("Access-Control-Request-Method") != "" && r.ContentLength == 0 &&
		h.Get("Cookie") == "" && h.Get("Authorization") == ""
}

// preflight decides for a CORS preflight: see Rule.CountPreflights.
func (r *mounted) preflight(ctx context.Context, req *keyfuncs.Request, p *prepared) {
	switch {
	case !r.traits.KeepsOnFailure || r.traits.KeepsToken:
		warn.Preflight.Tell(ctx, r.logger(), r.name, "guard", r.name)
		p.refusal = r.refuse(answers.ReasonPreflight, core.Decision{Guard: r.name})
		p.err = &keyError{field: "preflight"}
	case r.Bans == nil:
		p.passes = true
	default:
		// A banned client may forge preflights. A real preflight has no credentials, so it may have no actor to
		// ask for.
		var err error
		p.attempt.Actor, err = r.actor(req)
		p.passes, p.only = err != nil, err == nil
	}
}

func (r *mounted) makeAttempt(ctx context.Context, req *keyfuncs.Request, p *prepared) {
	a, err := r.attempt(req)
	a.Shadow = p.attempt.Shadow
	switch p.attempt = a; {
	case errors.Is(err, errNobody) && r.NoKey == NoKeySkip:
		p.passes = true
	case err != nil:
		p.refusal, p.err = r.refuseKey(ctx, err), err
	}
}

// lookAhead asks what the process remembers of the rules from the given one on, before the first of them
// takes anything. Else a flood that a later rule refuses would cost two calls per request: the earlier rules
// take, and give back.
//
// It stops before a rule that keeps outcomes, since that rule may have a stored answer for the request. It
// stops before a rule that waits for the request's body, since the rules in front may refuse without the
// body. It stops before a rule in the shadow of a Rollout, which has to be asked about each request. It
// also stops at a refusal that needs no memory: its rule refuses when its turn comes.
func (p *Pipeline) lookAhead(
	ctx context.Context, req *keyfuncs.Request, from int, ready []prepared,
) (*mounted, *answers.Refusal) {
	for i, rule := range p.rules[from:] {
		if rule.traits.KeepsOutcome || i > 0 && rule.readsBody && bodied(req) {
			break
		}
		if !rule.recalls() && rule.Rollout == nil {
			continue
		}
		known := &ready[from+i]
		rule.prepare(ctx, req, known)
		if known.refusal != nil || known.cohort == cohortShadowed {
			break
		}
		if known.passes || known.cohort == cohortSkipped {
			continue
		}
		if refusal := rule.remembered(ctx, known.attempt, known.only); refusal != nil {
			if rule.Rollout != nil {
				refusal = rule.Rollout.note(known.cohort, refusal)
			}
			return rule, refusal
		}
	}
	return nil, nil
}

// looksAhead reports whether to look ahead before the rule at i is asked. It does at the first rule, and
// after each rule that keeps outcomes. It also does where the look-ahead has stopped for the request's
// body, if another rule follows.
func (p *Pipeline) looksAhead(i int, bodied bool) bool {
	return i+1 < len(p.rules) && !p.rules[i].traits.KeepsOutcome &&
		(i == 0 || p.rules[i-1].traits.KeepsOutcome || bodied && p.rules[i].readsBody)
}

// bodied reports whether the request may have a body.
func bodied(req *keyfuncs.Request) bool { return req.Body != nil && req.Body != http.NoBody }

// recalls reports whether the rule's bans or its guard remember anything.
func (r *mounted) recalls() bool {
	_, guard := r.Guard.(kit.Recaller)
	_, bans := r.Bans.(kit.Recaller)
	return guard || bans
}

// remembered returns the refusal that the rule's bans or its guard remember for the attempt, or nil.
// With only, the guard is not asked.
func (r *mounted) remembered(ctx context.Context, a core.Attempt, only bool) *answers.Refusal {
	if bans, ok := r.Bans.(kit.Recaller); ok {
		if d, ok := bans.Recall(ctx, a); ok {
			return r.refuseBanned(d)
		}
	}
	guard, ok := r.Guard.(kit.Recaller)
	if !ok || only {
		return nil
	}
	d, ok := guard.Recall(ctx, a)
	if !ok {
		return nil
	}
	d.Guard = r.name // a guard of the application may set another name
	if r.othersOf(&a) {
		soon(&d)
	} else {
		r.strike(ctx, a, d.Reason)
	}
	return r.refuse(d.Reason, d)
}
