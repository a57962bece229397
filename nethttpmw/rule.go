package nethttpmw

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// Rule is a guard and how an attempt is made out of a request. It is plain data: the same rule may be mounted on several
// routes and in several frameworks, and then it is one budget.
type Rule struct {
	// Guard decides. Required.
	Guard core.Guard
	// Who finds the actor: keyfuncs.IP(), keyfuncs.User("uid"). Required.
	Who keyfuncs.Func
	// What finds the resource: the poll, the item on sale, the route. Guards whose Traits say NeedsResource
	// require it. Nil: none, so a rate limit has one budget for each actor on all routes that it is mounted on.
	What keyfuncs.Func
	// Which finds the item that the attempt picks: a voter's choice, the article that is read. Guards whose
	// Traits say NeedsItem require it. For guards whose Traits say KeepsOutcome it finds what makes a repetition
	// the same request, and nil is keyfuncs.Fingerprint(). Nil elsewhere: none.
	Which keyfuncs.Func
	// Cost finds how much the attempt takes. Nil: 1. An error, or less than 1, is answered with 400.
	Cost func(r *keyfuncs.Request) (int64, error)
	// ID finds the operation ID, such as keyfuncs.IdempotencyKey(). Guards whose Traits say NeedsID require it.
	// Elsewhere, nil or nothing found: the guard makes one.
	ID keyfuncs.Func
	// Origin finds where the attempt comes from, such as keyfuncs.IP() or a device's cookie, for guards that keep it in an audit
	// stream, as votes do. Nothing is decided by it. Nil, or nothing found: empty.
	Origin keyfuncs.Func

	// Deny has those whom the rule refuses as ReasonDenied, whatever else it says: it is asked first. Nil: nobody.
	Deny *keyfuncs.List
	// Allow has those who pass this rule uncounted: neither the ban nor the guard is asked, and there is no Decision. Nil: nobody.
	//
	// A request that does not carry the key of a list is not in it. A malformed one is answered with 400, as for Who.
	Allow *keyfuncs.List
	// Bans shuts out actors whom the guard refuses too often: bans.New makes one. An actor who is banned is
	// refused before the guard is asked. Each refusal by the guard is a strike, but for those that are the
	// server's fault (5xx), those that are decided inside the process because Redis could not be asked, and
	// those that the guard describes as Expected (see core.Answer).
	//
	// One Bans may serve several rules, whose Who should be the same: then their refusals count together, and a
	// ban holds on all of their routes. When Redis cannot be asked about bans, the rule goes on without; the
	// engine's observer hears of it. Nil: nobody is banned.
	Bans Bans

	// Rollout says for whom the rule is on, while it is brought in or tried in the shadow. Nil: it is enforced for all.
	Rollout *Rollout

	// NoKey says what it means when Who finds nothing, or ID where the guard requires one. What and Which that find nothing are always
	// answered with 400: a client must not pass a rule by leaving something out.
	NoKey NoKey
	// OnOutage says what it means when the guard can not decide. The default is the guard's own.
	OnOutage core.Outage
	// Failed reports whether a request that is answered with this status failed, so that what its attempt took
	// is given back. It is asked once, when the handler's status is about to be sent: what becomes of the
	// connection and of the request's context later changes nothing. A panic before that counts as 500, a
	// request that nobody answers as StatusClientGone; then an operation whose outcome is kept begins anew, and
	// Failed is not asked. Nil: 400 and up for claims such as votes and purchases, never for guards whose Traits
	// say KeepsOnFailure, such as rate limits. To count only failed logins, say that the others failed:
	//
	//	Failed: func(status int) bool { return status != http.StatusUnauthorized }
	Failed func(status int) bool

	// Headers says what clients are told of the rule's figures. The zero value is the RateLimit fields.
	Headers Headers
	// Texts says what the rule's refusals say to people, such as in the language of the request; the other members of a body stay
	// as they are. It is called before anything is written, from many goroutines at once. Nil: English texts that say little.
	Texts func(r *http.Request, refusal *Refusal) Text
	// Answer answers the requests that the rule refuses, in place of Refusal.Reply: with a page of the
	// application's own, a redirect, or by passing on to Reply. It is not asked where a kept answer is given
	// again. The RateLimit fields, Retry-After and Cache-Control are set before, and may be changed. Whatever it
	// does, the handler does not run: where it writes nothing the request gets Reply, and a panic goes to the
	// application's recoverer, as those of Texts and of key functions do. It is called from many goroutines at
	// once. Nil: Reply.
	Answer func(w http.ResponseWriter, r *http.Request, refusal *Refusal)
}

// Bans shuts out actors: *bans.Guard does. Implementations must be safe for concurrent use. Those that
// describe themselves (see core.Describer) say how those whom they shut out are answered.
type Bans interface {
	// Name is the name of the guard that keeps the bans.
	Name() string
	// Check refuses an actor who is banned. An error is for the implementation to tell of: the rule goes on
	// without.
	Check(ctx context.Context, a core.Attempt) (core.Decision, error)
	// Strike notes that the actor was refused, and reports whether a ban begins by it.
	Strike(ctx context.Context, a core.Attempt) (banned bool, err error)
}

// NoKey is what a rule does when it finds nobody to count: Who, or an ID that the guard requires, is keyfuncs.ErrMissing. A malformed key is always refused.
type NoKey int

const (
	// NoKeyRefuse answers 400. A request is never put into a shared bucket for the nameless.
	NoKeyRefuse NoKey = iota
	// NoKeySkip lets the request pass this rule, for example a limit by user on a route that is open to all.
	NoKeySkip
)

// StatusClientGone is the status that Rule.Failed is asked about when nobody answered: the handler ended without writing anything and
// the request's context was over, or http.TimeoutHandler or the like, around the rules, has answered in its place. A client that can
// still hear is told 503, as an Unavailable refusal.
const StatusClientGone = 499

// errNobody says that a request does not say whose it is.
var errNobody = errors.New("nobody to count")

// check finds rules that can not work, which are the developer's mistakes.
func (r *Rule) check() error {
	if r.Guard == nil {
		return errors.New("has no Guard: make one, such as limit.NewSlidingWindow(...)")
	}
	traits := r.Guard.Traits()
	switch {
	case r.Who == nil:
		return errors.New("has no Who: say who is counted, such as keyfuncs.IP() or keyfuncs.User(...)")
	case r.What == nil && traits.NeedsResource:
		return errors.New("has no What: say which poll or item it is about, such as keyfuncs.Param(...)")
	case r.ID == nil && traits.NeedsID:
		return errors.New("has no ID: say what a repetition is known by, such as keyfuncs.IdempotencyKey()")
	case r.Which == nil && traits.NeedsItem:
		return errors.New("has no Which: say which of the different things it is, such as keyfuncs.Param(...)")
	}
	if r.Headers.Hide && r.Headers.Legacy {
		return errors.New("has Headers that Hide its figures and show them to Legacy clients: leave one of them out")
	}
	outage := cmp.Or(r.OnOutage, traits.Outage)
	if _, ok := r.Guard.(core.LocalGuard); outage == core.FailLocal && !ok {
		return errors.New("has OnOutage: core.FailLocal, and a guard that can not decide inside one process: use core.FailClosed")
	}
	return nil
}

// mounted is a rule in a pipeline, with what its guard has said of itself when the pipeline was made.
type mounted struct {
	Rule
	name    string
	traits  core.Traits
	answers answerTable
	bans    answerTable // of those whom Bans shuts out
	local   core.LocalGuard
}

// mount checks a rule, and asks its guard once what the pipeline has to know of it.
func mount(rule Rule) (*mounted, error) {
	if err := rule.check(); err != nil {
		return nil, err
	}
	m := &mounted{Rule: rule, name: rule.Guard.Name(), traits: rule.Guard.Traits(), answers: answersOf(rule.Guard)}
	m.local, _ = rule.Guard.(core.LocalGuard)
	if rule.Bans != nil {
		m.bans = answersOf(rule.Bans)
	}
	return m, nil
}

// refuse makes a refusal by the rule's guard, or by the pipeline in its place.
func (r *mounted) refuse(reason core.Reason, d core.Decision) *Refusal {
	return refuse(r.answers, reason, d)
}

// listed looks the request up in the rule's lists. Deny wins.
func (r *mounted) listed(req *keyfuncs.Request) (denied, allowed bool, err error) {
	if r.Deny != nil {
		if denied, err = r.Deny.Contains(req); err != nil {
			return false, false, fmt.Errorf("deny: %w", err)
		}
	}
	if r.Allow != nil && !denied {
		if allowed, err = r.Allow.Contains(req); err != nil {
			return false, false, fmt.Errorf("allow: %w", err)
		}
	}
	return denied, allowed, nil
}

// banned returns the decision by which the attempt's actor is shut out, if he is. An error has been observed, and then the guard
// decides alone: see Rule.Bans.
func (r *mounted) banned(ctx context.Context, a core.Attempt) (d core.Decision, banned bool) {
	if r.Bans == nil {
		return d, false
	}
	d, err := r.Bans.Check(ctx, a)
	return d, err == nil && !d.Allowed
}

// strike counts a refusal by the guard against the attempt's actor. An error has been observed, and the refusal stands.
func (r *mounted) strike(ctx context.Context, a core.Attempt, reason core.Reason) {
	if r.Bans == nil {
		return
	}
	if answer := r.answers.to(reason); !answer.Expected && answer.Status < http.StatusInternalServerError {
		_, _ = r.Bans.Strike(ctx, a) // observed
	}
}

// attempt makes the attempt that a request is.
func (r *mounted) attempt(req *keyfuncs.Request) (a core.Attempt, err error) {
	if a.Actor, err = text("who", r.Who, req); err != nil {
		if errors.Is(err, keyfuncs.ErrMissing) {
			err = fmt.Errorf("%w: %w", errNobody, err)
		}
		return a, err
	}
	if a.Resource, err = text("what", r.What, req); err != nil {
		return a, err
	}
	if a.ID, err = text("id", r.ID, req); errors.Is(err, keyfuncs.ErrMissing) {
		if r.traits.NeedsID {
			return a, fmt.Errorf("%w: %w", errNobody, err)
		}
	} else if err != nil {
		return a, err
	}
	if a.Item, err = text("which", r.which(), req); err != nil {
		return a, err
	}
	if a.Cost, err = r.cost(req); err != nil {
		return a, err
	}
	if a.Origin, err = text("origin", r.Origin, req); err != nil && !errors.Is(err, keyfuncs.ErrMissing) {
		return a, err
	}
	return a, nil
}

// which is the rule's Which, or what stands for it.
func (r *mounted) which() keyfuncs.Func {
	if r.Which == nil && r.traits.KeepsOutcome {
		return sameRequest
	}
	return r.Which
}

// cost asks the rule's Cost; zero where there is none, which guards take as 1.
func (r *mounted) cost(req *keyfuncs.Request) (int64, error) {
	if r.Cost == nil {
		return 0, nil
	}
	cost, err := r.Cost(req)
	switch {
	case err != nil:
		return 0, fmt.Errorf("cost: %w: %w", core.ErrInvalid, err)
	case cost < 1:
		return 0, fmt.Errorf("%w: cost %d is less than 1", core.ErrInvalid, cost)
	}
	return cost, nil
}

// text calls a key function, if there is one. Empty text is nothing found: an application's own function must not put
// everybody into one bucket either.
func text(field string, f keyfuncs.Func, req *keyfuncs.Request) (string, error) {
	if f == nil {
		return "", nil
	}
	found, err := f(req)
	if err == nil && found == "" {
		err = keyfuncs.ErrMissing
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", field, err)
	}
	return found, nil
}

// keepsOn reports whether what the rule's attempt took is kept when the request ends with this status.
func (r *mounted) keepsOn(status int) bool {
	switch {
	case r.Failed != nil:
		return !r.Failed(status)
	case r.traits.KeepsOnFailure:
		return true
	}
	return status < http.StatusBadRequest
}

// settles reports whether the way that a request ends matters to the rule.
func (r *mounted) settles() bool {
	return r.Failed != nil || !r.traits.KeepsOnFailure || r.traits.Confirms
}

func (r *mounted) outage() core.Outage { return cmp.Or(r.OnOutage, r.traits.Outage) }
