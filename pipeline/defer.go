package pipeline

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
	"github.com/gatehouse-go/gatehouse/pipeline/internal/mounted"
)

// Page is a handler that reads requests by key functions, such as the page of *deferred.Requests. On gin and
// echo these find what the login has stored there: mount it with the function Page of the adapter. On
// net/http a page is an http.Handler by itself.
type Page interface {
	// ServePage answers the request. It is called from many goroutines at once.
	ServePage(w http.ResponseWriter, r *keyfuncs.Request)
}

// Rerun is what rules know of a request that was deferred and now runs.
type Rerun struct {
	depth   int64
	passed  atomic.Int64 // how many middlewares with a Defer
	refusal atomic.Pointer[answers.Refusal]
	decided atomic.Bool // a guard has refused for good, or told that the request is done
}

// Refusal returns the last refusal by a rule. Nil: no rule has refused the request.
func (r *Rerun) Refusal() *answers.Refusal { return r.refusal.Load() }

// Answered reports whether the response is the request's answer. It is if the request has passed the rule
// that had deferred it, or if a guard has decided it: a sale is sold out, an operation is done. Any other
// response comes from something in front of the handler that did not let it run. Examples are a login, a
// redirect, and a rule that could not read the request.
func (r *Rerun) Answered() bool { return r.decided.Load() || r.passed.Load() >= r.depth }

// rerunKey is the key of the Rerun in a request's context.
type rerunKey struct{}

// WithRerun returns a context for a request that was deferred and now runs. It is for a [Deferrer]. The
// request is not deferred again, and its refusals are no strikes. depth is what Defer was called with: how
// many middlewares with a Defer the request had got to.
func WithRerun(ctx context.Context, depth int) (context.Context, *Rerun) {
	r := &Rerun{depth: int64(max(1, depth))}
	return context.WithValue(ctx, rerunKey{}, r), r
}

// rerunOf returns the Rerun of a request that was deferred and now runs.
func rerunOf(ctx context.Context) *Rerun {
	r, _ := ctx.Value(rerunKey{}).(*Rerun)
	return r
}

// tellRerun tells the Rerun of a request, if it has one, that the request passes these rules.
func (p *Passage) tellRerun() {
	if rerun := rerunOf(&p.settling); rerun != nil {
		rerun.passed.Add(1)
	}
}

// depth returns how many middlewares with a Defer the request has got to, with this one.
func (p *Passage) depth() (n int) {
	for ; p != nil; p = p.outer {
		if p.pipeline.defers {
			n++
		}
	}
	return n
}

// deferredBefore answers a request that was deferred before. Without this, it could pass the rules now, and
// run beside the one that is stored.
func (p *Passage) deferredBefore() (*mounted.Rule, *answers.Refusal) {
	if rerunOf(&p.settling) != nil {
		return nil, nil
	}
	var known *answers.Deferral
	var err error
	for _, rule := range p.pipeline.rules {
		if rule.Defer == nil {
			continue
		}
		if !rule.SameDefer {
			p.from.Logger = rule.Source.Logger
			known, err = rule.Defer.Known(&p.settling, &p.from)
		}
		switch {
		case err != nil && (isKeyError(err) || rule.Outage() == core.FailClosed):
			return rule, refuseUnknown(&p.settling, rule, err)
		case err == nil && known != nil:
			return rule, p.accept(rule, rule.Refuse(core.ReasonDeferred, core.Decision{Guard: rule.Name}), known)
		}
	}
	return nil, nil
}

// isKeyError reports whether a key function could not read the request, rather than that the queue failed.
func isKeyError(err error) bool {
	return errors.Is(err, keyfuncs.ErrMalformed) || errors.Is(err, keyfuncs.ErrRequired)
}

// refuseUnknown refuses a request of which is not known whether it was deferred.
func refuseUnknown(ctx context.Context, r *mounted.Rule, err error) *answers.Refusal {
	if isKeyError(err) {
		return r.RefuseKey(ctx, err)
	}
	return r.Refuse(answers.ReasonUnavailable, core.Decision{Guard: r.Name})
}

// refused ends what Enter does for a request that a rule refuses: the request is deferred if the rule says so
// and waiting helps.
func (p *Passage) refused(rule *mounted.Rule, f *answers.Refusal) *answers.Refusal {
	warnOfTwice(p.outer, rule, &f.Decision)
	p.refusedBy(f, rule)
	if rerun := rerunOf(&p.settling); rerun != nil {
		rerun.refusal.Store(f)
		if decided(f) {
			rerun.decided.Store(true)
		}
		return f
	}
	if rule.Defer == nil || !deferrable(f) {
		return f
	}
	d, err := rule.Defer.Defer(&p.settling, &p.from, f.Decision.RetryAfter, p.depth())
	if err != nil || d == nil {
		return f
	}
	return p.accept(rule, f, d)
}

// deferrable reports whether the guard itself has refused the request until a known moment. A banned client
// has to stay away, and an operation in progress need not run twice.
func deferrable(f *answers.Refusal) bool {
	switch f.Reason {
	case core.ReasonInProgress, core.ReasonUnconfirmed, answers.ReasonUnavailable:
		return false
	default:
		return f.Decision.RetryAfter > 0 && decided(f)
	}
}

// decided reports whether the guard itself has refused the request.
func decided(f *answers.Refusal) bool { return f.Reason == f.Decision.Reason && !f.Banned }

// accept makes of a refusal the answer to a request that runs later.
//
// The handler has not run. So what a middleware of rules around this one has claimed goes back: a sale must
// not be confirmed, and no outcome be kept, by a 202 that only promises a run.
func (p *Passage) accept(rule *mounted.Rule, f *answers.Refusal, d *answers.Deferral) *answers.Refusal {
	if d.Conflict {
		return p.refusedBy(rule.Refuse(core.ReasonConflict, core.Decision{Guard: rule.Name}), rule)
	}
	for l := p.outer; l != nil; l = l.outer {
		l.deferred = true
	}
	f.Defer(rule.Table, d)
	return f
}
