package pipeline

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"slices"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/warn"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// stage is a part of what a rule does with a request before it asks its bans and its guard. A rule has the
// stages that it needs: a bare limit two. They are numbers rather than functions, so that what they fill in
// takes no allocation.
type stage uint8

const (
	stageRollout stage = iota
	stageLists
	stagePreflight
	stageAttempt // the last one
)

// stagesOf returns the stages that the rule needs.
func (r *mounted) stagesOf() []stage {
	return needed(map[stage]bool{
		stageRollout: r.Rollout != nil, stageLists: r.Deny != nil || r.Allow != nil,
		stagePreflight: !r.CountPreflights, stageAttempt: true,
	})
}

// needed returns what is needed of all, in order.
func needed[T cmp.Ordered](all map[T]bool) []T {
	maps.DeleteFunc(all, func(_ T, needed bool) bool { return !needed })
	return slices.Sorted(maps.Keys(all))
}

// look goes through the rule's stages, unless that was done before. It is done once per request, because
// functions of the application take part.
func (t *turn) look(p *Passage) {
	if t.step != stepNew {
		return
	}
	r, req := t.rule, &p.from
	req.Logger = r.source.Logger
	for _, stage := range r.stages {
		switch stage {
		case stageRollout:
			t.cohort = r.cohort(req)
			if t.attempt.Shadow = t.cohort == cohortShadowed; t.cohort == cohortSkipped {
				t.step = stepPasses
			}
		case stageLists:
			t.lists(p)
		case stagePreflight:
			if req.Method == http.MethodOptions && isPreflight(req.Request) {
				t.preflight(p)
			}
		case stageAttempt:
			t.makeAttempt(p)
		}
		if t.step != stepNew {
			return
		}
	}
}

// refuse ends the turn of a rule that refuses without its guard.
func (t *turn) refuse(refusal *answers.Refusal, err error) {
	t.step, t.refusal, t.err = stepRefused, refusal, err
}

// lists applies the rule's lists. Deny takes precedence.
func (t *turn) lists(p *Passage) {
	r, field := t.rule, "deny"
	listed, err := contains(r.Deny, &p.from)
	if listed {
		t.refuse(r.refuse(answers.ReasonDenied, core.Decision{Guard: r.name}), &keyError{field: "deny"})
		return
	}
	if err == nil {
		field = "allow"
		if listed, err = contains(r.Allow, &p.from); listed {
			t.step = stepPasses
		}
	}
	if err != nil {
		err = &keyError{field, err}
		t.refuse(r.refuseKey(&p.settling, err), err)
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
func (t *turn) preflight(p *Passage) {
	r := t.rule
	switch {
	case !r.traits.KeepsOnFailure || r.traits.KeepsToken:
		warn.Preflight.Tell(&p.settling, r.logger(), r.name, "guard", r.name)
		t.refuse(r.refuse(answers.ReasonPreflight, core.Decision{Guard: r.name}), &keyError{field: "preflight"})
	case r.Bans == nil:
		t.step = stepPasses
	default:
		// A banned client may forge preflights. A real preflight has no credentials, so it may have no actor to
		// ask for.
		t.step = stepPreflight
		var err error
		if t.attempt.Actor, err = r.actor(&p.from); err != nil {
			t.step = stepPasses
		}
	}
}

// makeAttempt makes the attempt, for which the bans and the guard are asked.
func (t *turn) makeAttempt(p *Passage) {
	a, err := t.rule.attempt(&p.from)
	a.Shadow = t.attempt.Shadow
	switch t.attempt = a; {
	case errors.Is(err, errNobody) && t.rule.NoKey == NoKeySkip:
		t.step = stepPasses
	case err != nil:
		t.refuse(t.rule.refuseKey(&p.settling, err), err)
	default:
		t.step = stepReady
	}
}
