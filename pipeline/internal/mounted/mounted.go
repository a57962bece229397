// Package mounted has rules as a pipeline holds them: what each guard said of itself when the pipeline was
// made, and what a rule makes of a request before its bans and its guard are asked.
package mounted

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/internal/warn"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
	"github.com/gatehouse-go/gatehouse/pipeline/rule"
)

// Rule is a rule of a pipeline. It is safe for concurrent use.
type Rule struct {
	rule.Rule
	Name   string
	Traits core.Traits
	Source answers.Source
	Table  answers.Table // of the guard
	Counts bool          // however requests end, and is no claim: see kit.Phased
	Places bool          // what the guard takes may go back, for which a claim needs a core.Place
	Phases kit.Phased    // of the guard; nil: Check decides
	Local  kit.LocalGuard
	Holder kit.Holder // nil: claims of the guard are not lost while the request runs

	// ReadsBody is whether a function of the rule reads the request's body, for which it may have to wait.
	ReadsBody bool

	// Together is the number of rules from this one on that may be asked together, or 0 if it is asked alone.
	// SameDefer is whether the last rule in front that has a Defer has the same: it is asked once per request.
	// The pipeline sets both.
	Together  int
	SameDefer bool

	bans     answers.Table        // of Bans
	runs     any                  // key of the count of running attempts: see runsOf
	stages   []stage              // that a request goes through
	has      []part               // of its attempts
	failures warn.Sample[failure] // of the key functions
	logins   *logins              // nil: Who needs no login
}

// Refuse makes a refusal by the rule's guard, or by the pipeline on its behalf.
func (r *Rule) Refuse(reason core.Reason, d core.Decision) *answers.Refusal {
	return answers.Refuse(r.Table, reason, d)
}

// RefuseBanned makes a refusal by the rule's Bans.
func (r *Rule) RefuseBanned(d core.Decision) *answers.Refusal {
	f := answers.Refuse(r.bans, d.Reason, d)
	f.Banned = true
	return f
}

// Banned returns the decision that shuts the actor out, if there is a ban. An error has been observed; the
// guard then decides alone: see Rule.Bans.
func (r *Rule) Banned(ctx context.Context, a core.Attempt) (d core.Decision, banned bool) {
	if r.Bans == nil {
		return core.Decision{}, false
	}
	if d, err := r.Bans.Check(ctx, a); err == nil && !d.Allowed {
		return d, true
	}
	return core.Decision{}, false
}

// Strike counts a refusal by the guard against the actor. An error has been observed, and the refusal stands.
func (r *Rule) Strike(ctx context.Context, a core.Attempt, reason core.Reason) {
	if r.Bans == nil {
		return
	}
	if answer := r.Table.Answer(reason); !answer.Expected && answer.Status < http.StatusInternalServerError {
		_, _ = r.Bans.Strike(ctx, a) // observed
	}
}

// KeepsOn reports whether the request keeps what its attempt took when it ends with this status.
func (r *Rule) KeepsOn(status int) bool {
	switch {
	case r.Failed != nil:
		return !r.Failed(status)
	case r.Traits.KeepsOnFailure:
		return true
	}
	return status < http.StatusBadRequest
}

// Settles reports whether the rule depends on how a request ends.
func (r *Rule) Settles() bool {
	return r.Failed != nil || !r.Traits.KeepsOnFailure || r.Traits.Confirms
}

// Logger returns the logger of the engine of the rule's guard.
func (r *Rule) Logger() *slog.Logger { return core.LoggerOf(r.Guard) }

// Outage returns what follows when the guard cannot decide.
func (r *Rule) Outage() core.Outage { return cmp.Or(r.OnOutage, r.Traits.Outage) }

// stage is a part of the look at a request. A rule has the stages that it needs: a bare limit two. They are
// numbers rather than functions, so that what they fill in takes no allocation.
type stage uint8

const (
	stageRollout stage = iota
	stageLists
	stagePreflight
	stageAttempt // the last one
)

// part is a part of an attempt, apart from its actor. Parts are numbers rather than functions, so that what
// they fill in takes no allocation.
type part uint8

const (
	partResource part = iota
	partID
	partItem
	partCost
	partToken
	partOrigin
)

// failure is a kind of failure of a key function.
type failure struct{ key, function string }
