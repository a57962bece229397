// Package rule has what a rule is: plain data, with the checks of it at set-up, and a [Rollout] by which it
// begins. Package pipeline takes requests through rules.
package rule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// Rule is a guard, and how an attempt is made out of a request. It is plain data. The same rule may be
// mounted on several routes and in several frameworks; then it is one budget.
type Rule struct {
	// Guard decides. Required.
	//
	// Consecutive rules with rate limits, or with semaphores without a Wait, are asked together, in one round
	// trip to each master of Redis. They are while the process expects them to allow the request and to have
	// an eighth of their units or permits left. If one of them refuses nevertheless, the rules behind it leave
	// no trace: what they took is given back at once. Any other rule is asked when the rules in front have
	// allowed the request. This holds for limits with less left, for all other guards that make claims, and
	// for rules that read the request's body: by a key function that says so (see keyfuncs.ReadsBody), by
	// lists or by Cost.
	Guard core.Guard
	// Who finds the actor, such as keyfuncs.IP() or keyfuncs.User("uid"). Required.
	Who keyfuncs.Func
	// Under finds the groups of the actor, the outermost first, such as an organisation and a team. It is for
	// guards with levels, such as budgets, and has a function for each level but the last, which is Who. If
	// the first function finds nothing (keyfuncs.ErrMissing), the answer is 400. If another one finds nothing,
	// the actor is in no such group. The attempt's Actor is the path: keyfuncs.JoinTexts of all.
	Under []keyfuncs.Func
	// What finds the resource: the poll, the item on sale, the route. Guards whose Traits say NeedsResource
	// require it. Nil: none, so a rate limit has one budget per actor for all routes on which it is mounted.
	What keyfuncs.Func
	// Which finds the item that the attempt picks: a voter's choice, the article that is read. Guards whose
	// Traits say NeedsItem require it. For guards whose Traits say KeepsOutcome it finds what makes a
	// repetition the same request, and nil means keyfuncs.Fingerprint(). Nil elsewhere: none.
	Which keyfuncs.Func
	// Cost finds how many units the attempt takes. Nil: 1. An error and a cost less than 1 are answered with
	// 400, an error that wraps keyfuncs.ErrTooLarge with 413. It may read the request's body. For a rate limit
	// it may be an estimate, which the handler corrects: see pipeline.Spend.
	Cost func(r *keyfuncs.Request) (int64, error)
	// ID finds the operation ID, such as keyfuncs.IdempotencyKey(). Guards whose Traits say NeedsID require
	// it. For other guards, if it is nil or finds nothing, the guard makes one.
	//
	// The attempt's ID is keyfuncs.JoinTexts(actor, found), so that no client can use the operation of another
	// one whose ID they have guessed. Where a program needs the ID, it takes it from Decision.Attempt.ID.
	ID keyfuncs.Func
	// BareID makes the attempt's ID exactly the value that ID finds. It is for IDs that the server has given
	// out and that other parts of the application know, such as an order number. Such an ID belongs to the
	// first actor who uses it: attempts of others are refused as core.ReasonConflict.
	BareID bool
	// RunReplays makes the handler run for replays too: see the section Replays of the package. It is for
	// handlers that look at Decision.Replayed, and for those that call pipeline.Take. Such a handler may run
	// several times for one operation, also at once.
	RunReplays bool
	// Origin finds where the attempt comes from, such as keyfuncs.IP() or a device's cookie. Guards that keep
	// an audit stream, such as votes, record it. It has no effect on decisions. If it is nil or finds
	// nothing, the origin is empty.
	Origin keyfuncs.Func

	// Deny lists the requests that the rule refuses with ReasonDenied. It is checked first and takes
	// precedence over Allow. Nil: none.
	Deny *keyfuncs.List
	// Allow lists the requests that pass this rule uncounted: neither Bans nor the guard is asked, and there
	// is no Decision. Nil: none.
	//
	// A request without the key of a list is not in the list. A request whose key is malformed is answered
	// with 400, as for Who.
	Allow *keyfuncs.List
	// CountPreflights makes CORS preflights count like other requests. Without it, a limit lets them pass
	// uncounted after Deny and Bans: a browser sends them by itself and without credentials, and a page cannot
	// read a refusal. A guard that makes claims (its Traits do not say KeepsOnFailure) refuses them with
	// answers.ReasonPreflight, since its handler must not run without the claim: put the CORS middleware around
	// such a rule.
	//
	// Anybody can forge a preflight: OPTIONS with Origin and Access-Control-Request-Method. Where nothing
	// inside a limit answers a forged preflight, it runs the handler, uncounted. So set CountPreflights for
	// each handler that serves any method, such as http.FileServer or a pattern without a method, unless a
	// CORS middleware inside the rules answers preflights. With the CORS middleware around the rules, or
	// without one, that costs nothing: no preflight that a browser waits for gets to the rules.
	CountPreflights bool
	// Bans shuts out actors whom the guard refuses too often: bans.New makes one. A banned actor is refused
	// before the guard is asked. Each refusal by the guard is a strike, with these exceptions: refusals that
	// are the server's fault (5xx), those that the process decides itself because Redis is unavailable, those
	// in the shadow of a Rollout, those that the guard describes as Expected (see kit.Answer), and those that
	// are due to requests that may give back what they hold: see Failed.
	//
	// One Bans may serve several rules. Their Who should be the same. Then their refusals count together, and
	// a ban holds for all of them. When Redis cannot be asked about bans, the rule goes on without them, and
	// the engine's observer receives the error. Nil: nobody is banned.
	Bans Bans

	// Defer stores requests that the guard refuses until a known moment (its decision has a RetryAfter), and
	// the client gets 202 with the reason deferred, Retry-After, and a Location where the answer will be:
	// deferred.New makes one. Requests of banned actors are refused. So are requests whose operation is in
	// progress, and requests that Defer does not or cannot store. A deferred refusal counts as a strike all
	// the same.
	//
	// A request with the operation ID of one that was stored gets the same 202, before any rule is asked. If
	// the queue cannot be asked for it, OnOutage decides, or the policy of the guard.
	//
	// A request that runs later passes all middlewares again, unchanged. The middlewares in front of this rule
	// must let it pass as before. A response from behind this rule is its answer.
	//
	// A middleware of rules around this one sees status 429, since the handler has not run. Nil: requests are
	// refused.
	Defer Deferrer

	// Rollout limits the rule to a part of the clients while it is introduced. Nil: the rule is enforced for
	// all.
	Rollout *Rollout

	// NoKey says what happens to a request without who (Who finds nothing), or without the ID that the guard
	// requires: 400, or it passes the rule. It is not about What and Which. If one of them finds nothing, the
	// answer is always 400: a client must not evade a rule by leaving something out.
	NoKey NoKey
	// OnOutage says what happens when the guard cannot decide. Zero: the policy of the guard's Traits.
	OnOutage core.Outage
	// Failed reports whether a request with this response status failed. The pipeline gives back what a failed
	// request took. Failed is called once, when the status is about to be sent. Later events on the connection
	// or the request's context have no effect. A panic before that counts as 500. A request that nobody
	// answers counts as pipeline.StatusClientGone. For guards that keep outcomes it has failed, and Failed is
	// not called.
	//
	// Nil: status 400 or above has failed, except for guards whose Traits say KeepsOnFailure, such as rate
	// limits, for which no request fails. Where a few statuses count, Counted says so in a line.
	//
	// A request holds its units while it runs, and may give them back. While another request of the same actor
	// and resource is under way in this process, a refusal is no strike of Bans, and its RetryAfter is a
	// second at most. This does not concern permits of a semaphore, which come back whatever Failed says.
	Failed func(status int) bool
	// Counted lists the only response statuses with which a request keeps what it took. It is a Failed that is
	// true for all other statuses. A rule has one of the two. So a limit of tries counts only failed logins:
	//
	//	Counted: []int{http.StatusUnauthorized}
	//
	// Nil: Failed decides.
	Counted []int

	// Headers says which figures of the rule clients see. The zero value sends the RateLimit fields.
	Headers answers.Headers
	// Texts returns the text of the rule's refusals, for example in the language of the request. The other
	// members of the body stay as they are. It is called before anything is written, from many goroutines at
	// once. Nil: generic English texts.
	Texts func(r *http.Request, refusal *answers.Refusal) answers.Text
	// Answer writes the response to requests that the rule refuses, in place of Refusal.Reply: a page of the
	// application, a redirect, or whatever Reply writes. It is not called for a replayed answer. It is called
	// for a deferred request (core.ReasonDeferred), with Location set. The RateLimit fields, Retry-After and
	// Cache-Control are set before the call, and Answer may change them. The handler never runs. If Answer
	// writes nothing, the request gets Reply. A panic goes to the application's recoverer, as do panics of
	// Texts and of key functions. Answer is called from many goroutines at once. Nil: Reply.
	Answer func(w http.ResponseWriter, r *http.Request, refusal *answers.Refusal)
}

// Bans shuts out actors. *bans.Guard implements it. Implementations must be safe for concurrent use. A Bans
// that describes itself (see kit.Describer) defines how banned actors are answered.
type Bans interface {
	// Name is the name of the guard that keeps the bans.
	Name() string
	// Check refuses a banned actor. The implementation reports its errors itself: the rule ignores them and
	// goes on.
	Check(ctx context.Context, a core.Attempt) (core.Decision, error)
	// Strike records that the actor was refused, and reports whether this begins a ban.
	Strike(ctx context.Context, a core.Attempt) (banned bool, err error)
}

// Deferrer stores requests that a rule refuses for now, so that a worker runs them later: see Rule.Defer.
// *deferred.Requests implements it. Implementations must be safe for concurrent use, and report their errors
// themselves. The context is the request's without its cancellation.
type Deferrer interface {
	// Known returns the deferral of a request that was stored before, by the operation ID that the request has.
	// Nil: it was not, or has no operation ID.
	Known(ctx context.Context, r *keyfuncs.Request) (*answers.Deferral, error)
	// Defer stores a request that may succeed in this time. Nil: it cannot be deferred, such as one of nobody
	// who is logged in. After nil, and after an error, the request is refused as without Rule.Defer. depth is
	// for pipeline.WithRerun.
	Defer(ctx context.Context, r *keyfuncs.Request, wait time.Duration, depth int) (*answers.Deferral, error)
}

// NoKey says how a rule treats a request without an actor, or without an ID that the guard requires: Who or
// ID returned keyfuncs.ErrMissing. A malformed key is always refused.
type NoKey int

const (
	// NoKeyRefuse answers with 400. Requests without a key never share a bucket.
	NoKeyRefuse NoKey = iota
	// NoKeySkip lets the request pass this rule undecided, such as a limit per user on a route that is open to
	// all.
	NoKeySkip
)

// Check finds rules that cannot work, which are mistakes of the developer. pipeline.New panics on them.
func (r *Rule) Check() error {
	if IsNil(r.Guard) {
		return errors.New("has no Guard: set one, such as limit.NewSlidingWindow(...)")
	}
	if err := r.checkNil(); err != nil {
		return err
	}
	if err := cmp.Or(r.checkCounted(), r.checkUnder()); err != nil {
		return err
	}
	traits := r.Guard.Traits()
	switch {
	case r.Who == nil:
		return errors.New("has no Who: set the function that finds the actor, such as keyfuncs.IP() or " +
			"keyfuncs.User(...)")
	case r.What == nil && traits.NeedsResource:
		return errors.New("has no What: set the function that finds the poll or item, such as keyfuncs.Param(...)")
	case r.ID == nil && traits.NeedsID:
		return errors.New("has no ID: set the function that finds the operation ID, such as " +
			"keyfuncs.IdempotencyKey()")
	case r.Which == nil && traits.NeedsItem:
		return errors.New("has no Which: set the function that finds the item, such as keyfuncs.Param(...)")
	}
	if r.Headers.Hide && r.Headers.Legacy {
		return errors.New("has both Headers.Hide and Headers.Legacy, which contradict each other: set one of them")
	}
	outage := cmp.Or(r.OnOutage, traits.Outage)
	if _, ok := r.Guard.(kit.LocalGuard); outage == core.FailLocal && !ok {
		return errors.New("has OnOutage: core.FailLocal, but its guard cannot decide inside one process: use " +
			"core.FailClosed")
	}
	return nil
}

// checkUnder finds an Under that does not fit the levels of the guard.
func (r *Rule) checkUnder() error {
	if i := slices.IndexFunc(r.Under, func(f keyfuncs.Func) bool { return f == nil }); i >= 0 {
		return fmt.Errorf("has nil as function %d of Under: set one such as keyfuncs.User(...)", i+1)
	}
	levels := r.Guard.Traits().Levels
	if len(r.Under) == max(levels, 1)-1 {
		return nil
	}
	return fmt.Errorf("has %d functions in Under, and its guard %d levels: set a function for each level but "+
		"the last, and none for a guard without levels", len(r.Under), levels)
}

// checkNil finds fields that hold nil pointers.
func (r *Rule) checkNil() error {
	if r.Defer != nil && IsNil(r.Defer) {
		return fmt.Errorf("has a Defer that is a nil %T: make it with deferred.New, or leave the field out",
			r.Defer)
	}
	if r.Bans != nil && IsNil(r.Bans) {
		return fmt.Errorf("has Bans that are a nil %T: make them with bans.New, or leave the field out", r.Bans)
	}
	return nil
}

// checkCounted finds a Counted by which no request would count, or that Failed may contradict.
func (r *Rule) checkCounted() error {
	strange := func(status int) bool { return status < 100 || status > 999 }
	switch i := slices.IndexFunc(r.Counted, strange); {
	case r.Counted == nil:
		return nil
	case r.Failed != nil:
		return errors.New("has both Failed and Counted: set one of them")
	case len(r.Counted) == 0:
		return errors.New("has an empty Counted, so no request would count: list statuses, such as " +
			"http.StatusUnauthorized, or leave it out")
	case i >= 0:
		return fmt.Errorf("has Counted: %d, which is no status: list statuses such as http.StatusUnauthorized",
			r.Counted[i])
	}
	return nil
}

// IsNil reports whether an interface is nil or holds a nil pointer, such as a variable of type *bans.Guard
// that was never set. Such an interface is not nil itself, and its methods panic in the first request.
func IsNil(value any) bool {
	v := reflect.ValueOf(value)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// Answers returns the pipeline's, the guard's and the Bans' answers to the rule's refusals, sorted by
// reason. A guard that does not describe itself may refuse for further reasons. These get their
// [kit.StandardAnswer] if there is one, and status 403 otherwise. Answers is for documents and tests.
func (r Rule) Answers() []kit.Answer {
	all := answers.TableOf(r.Guard)
	if traits := r.Guard.Traits(); !traits.KeepsOutcome && !traits.KeepsOnFailure && !r.RunReplays {
		all.Add(core.ReasonReplayed)
		if traits.Confirms {
			all.Add(core.ReasonInProgress)
		}
	}
	if r.Defer != nil {
		all.Add(core.ReasonDeferred, core.ReasonConflict)
	}
	if r.Bans == nil {
		return all.Sorted(nil)
	}
	return all.Sorted(answers.TableOf(r.Bans))
}
