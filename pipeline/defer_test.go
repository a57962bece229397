package pipeline_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// storing is a Deferrer that says what the test wants.
type storing struct {
	known, stored *answers.Deferral
	err           error
	asked         int             // how often Known was called
	waits         []time.Duration // what Defer was asked for
	depth         int
}

func (s *storing) Known(context.Context, *keyfuncs.Request) (*answers.Deferral, error) {
	s.asked++
	return s.known, s.err
}

func (s *storing) Defer(
	_ context.Context, _ *keyfuncs.Request, wait time.Duration, depth int,
) (*answers.Deferral, error) {
	s.waits, s.depth = append(s.waits, wait), depth
	return s.stored, s.err
}

var later = &answers.Deferral{Location: "/deferred/o1", RetryAfter: 1500 * time.Millisecond}

// limited is a guard that refuses for ten seconds.
func limited(reason core.Reason) *refuser {
	return &refuser{fake{name: "own"}, core.Decision{Guard: "own", Reason: reason, RetryAfter: 10 * time.Second}}
}

// answerOf lets rules around a handler answer a request, and reports whether the handler ran.
func answerOf(r *http.Request, rules ...pipeline.Rule) (w *httptest.ResponseRecorder, ran bool) {
	w = httptest.NewRecorder()
	nethttpmw.HTTP(rules...)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran = true })).
		ServeHTTP(w, r)
	return w, ran
}

func deferring(g core.Guard, d pipeline.Deferrer) pipeline.Rule {
	rule := ruleOf(g)
	rule.Defer = d
	return rule
}

func TestARefusalThatIsDeferredIsAnsweredWith202(t *testing.T) {
	d := &storing{stored: later}
	w, ran := answerOf(blankRequest(), deferring(limited(core.ReasonLimited), d))
	const body = `{"title":"Accepted","status":202,"detail":"The request runs later. The Location field says ` +
		`where its answer will be.","reason":"deferred","location":"/deferred/o1"}` + "\n"
	h := w.Header()
	if w.Code != http.StatusAccepted || w.Body.String() != body || h.Get("Location") != "/deferred/o1" ||
		h.Get("Retry-After") != "2" || h.Get("Cache-Control") != "no-store" ||
		h.Get("Content-Type") != "application/json" || ran {
		t.Errorf("%d %v %s", w.Code, h, w.Body)
	}
	if len(d.waits) != 1 || d.waits[0] != 10*time.Second {
		t.Errorf("stored for %v", d.waits)
	}
}

// TestWhatIsNotStoredIsRefused: nobody is told 202 for a request that does not run later.
func TestWhatIsNotStoredIsRefused(t *testing.T) {
	for name, d := range map[string]*storing{
		"an error": {stored: later, err: errors.New("no queue")}, "declined": {},
	} {
		w, ran := answerOf(blankRequest(), deferring(limited(core.ReasonLimited), d))
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Location") != "" ||
			w.Header().Get("Retry-After") != "10" || ran {
			t.Errorf("%s: %d %v %s", name, w.Code, w.Header(), w.Body)
		}
	}
}

// TestRefusalsThatWaitingDoesNotHelpAreNotDeferred: those without a moment, operations that are in progress,
// and those of who is banned.
//
// Promise (Deferred requests): Refusals without a moment, bans, outages and operations in progress are not
// deferred.
func TestRefusalsThatWaitingDoesNotHelpAreNotDeferred(t *testing.T) {
	never := limited(core.ReasonOverLimit)
	never.decision.RetryAfter = 0
	banned := ruleOf(&fake{name: "own"})
	banned.Bans = banning{}
	for name, rule := range map[string]pipeline.Rule{
		"no moment": ruleOf(never), "in progress": ruleOf(limited(core.ReasonInProgress)), "banned": banned,
		"an outage": ruleOf(&failer{fake{name: "own"}}),
	} {
		d := &storing{stored: later}
		rule.Defer = d
		if w, ran := answerOf(blankRequest(), rule); w.Code < 400 || len(d.waits) > 0 || ran {
			t.Errorf("%s: %d, %v", name, w.Code, d.waits)
		}
	}
}

// banning bans everybody for a minute.
type banning struct{}

func (banning) Name() string { return "bans" }
func (banning) Check(context.Context, core.Attempt) (core.Decision, error) {
	return core.Decision{Guard: "bans", Reason: core.ReasonBanned, RetryAfter: time.Minute}, nil
}
func (banning) Strike(context.Context, core.Attempt) (bool, error) { return false, nil }

// TestARequestThatIsStoredDoesNotRunBeside: a repetition would pass the rule by now, and the work be done
// twice.
func TestARequestThatIsStoredDoesNotRunBeside(t *testing.T) {
	g := &fake{name: "own"}
	w, ran := answerOf(blankRequest(), deferring(g, &storing{known: later}))
	if w.Code != http.StatusAccepted || w.Header().Get("Location") != later.Location || ran ||
		len(g.ends()) > 0 {
		t.Errorf("%d %v, %v", w.Code, w.Header(), g.ends())
	}
	w, ran = answerOf(blankRequest(), deferring(g, &storing{known: &answers.Deferral{Conflict: true}}))
	if w.Code != http.StatusUnprocessableEntity || w.Header().Get("Location") != "" || ran {
		t.Errorf("another request with its ID: %d %v", w.Code, w.Header())
	}
}

// TestRulesThatShareADeferAskItOnce: whether a request is stored costs a call to Redis.
func TestRulesThatShareADeferAskItOnce(t *testing.T) {
	one, other := &storing{}, &storing{}
	_, ran := answerOf(blankRequest(), deferring(&fake{name: "a"}, one), ruleOf(&fake{name: "b"}),
		deferring(&fake{name: "c"}, one), deferring(&fake{name: "d"}, other))
	if !ran || one.asked != 1 || other.asked != 1 {
		t.Errorf("handler %v, asked %d and %d times, want once each", ran, one.asked, other.asked)
	}
	// The policies of all rules count, also of those that ask nobody.
	down := &storing{err: errors.New("down")}
	first, second := deferring(&fake{name: "a"}, down), deferring(&fake{name: "c"}, down)
	first.OnOutage, second.OnOutage = core.FailOpen, core.FailClosed
	w, ran := answerOf(blankRequest(), first, second)
	if w.Code != http.StatusServiceUnavailable || ran || down.asked != 1 {
		t.Errorf("%d, handler %v, asked %d times", w.Code, ran, down.asked)
	}
}

// TestWhetherARequestIsStoredIsUnknownInAnOutage: the policy of the rule decides.
//
// Promise (Deferred requests): If it is unknown whether an ID is stored, the rule's outage policy decides.
func TestWhetherARequestIsStoredIsUnknownInAnOutage(t *testing.T) {
	for policy, want := range map[core.Outage]int{
		core.FailClosed: http.StatusServiceUnavailable, core.FailOpen: http.StatusOK,
	} {
		rule := deferring(&fake{name: "own"}, &storing{err: errors.New("no queue")})
		rule.OnOutage = policy
		if w, ran := answerOf(blankRequest(), rule); w.Code != want || ran != (want == http.StatusOK) {
			t.Errorf("%v: %d, want %d", policy, w.Code, want)
		}
	}
	rule := deferring(&fake{name: "own"}, &storing{err: keyfuncs.ErrMalformed})
	if w, _ := answerOf(blankRequest(), rule); w.Code != http.StatusBadRequest {
		t.Errorf("a malformed ID: %d", w.Code)
	}
}

// TestARequestThatRunsAgainIsNotStoredAgain: the worker is told that it was refused, which is no strike.
func TestARequestThatRunsAgainIsNotStoredAgain(t *testing.T) {
	d, bans := &storing{stored: later, known: later}, &strikes{}
	rule := deferring(limited(core.ReasonLimited), d)
	rule.Bans = bans
	ctx, rerun := pipeline.WithRerun(t.Context(), 1)
	w, ran := answerOf(blankRequest().WithContext(ctx), rule)
	told := rerun.Refusal()
	if w.Code != http.StatusTooManyRequests || told == nil || told.Reason != core.ReasonLimited ||
		len(d.waits) > 0 || bans.n != 0 || ran {
		t.Errorf("%d, told %v, stored %v, %d strikes", w.Code, told, d.waits, bans.n)
	}
}

// TestRulesAroundADeferredRequestGiveBack: a 202 for a request that has not run confirmed the sale around it,
// and became the outcome of its operation, which therefore never ran.
//
// Promise (Deferred requests): A 202 confirms no sale, and is no outcome of an operation: rules around give
// back their claims.
func TestRulesAroundADeferredRequestGiveBack(t *testing.T) {
	for name, d := range map[string]*storing{"stored now": {stored: later}, "stored before": {known: later}} {
		sale, kept := &fake{name: "sale", traits: core.Traits{Confirms: true}}, newKeeper("once", 100)
		once := keeping(kept)
		once.Failed = func(status int) bool { return status >= http.StatusInternalServerError }
		inner := nethttpmw.HTTP(deferring(limited(core.ReasonLimited), d))(http.NotFoundHandler())
		w := httptest.NewRecorder()
		nethttpmw.HTTP(once, ruleOf(sale))(inner).ServeHTTP(w, blankRequest())
		if w.Code != http.StatusAccepted {
			t.Errorf("%s: %d", name, w.Code)
		}
		if ends := sale.ends(); len(ends) != 1 || ends[0] {
			t.Errorf("%s: the sale was settled %v", name, ends)
		}
		if ends := kept.ends(); len(ends) != 1 || ends[0] {
			t.Errorf("%s: the operation was settled %v", name, ends)
		}
	}
}

// TestPagesOfOtherOriginsReadWhereTheAnswerWillBe: else they cannot ask for it.
func TestPagesOfOtherOriginsReadWhereTheAnswerWillBe(t *testing.T) {
	w := httptest.NewRecorder()
	rule := deferring(limited(core.ReasonLimited), &storing{stored: later})
	cors(nethttpmw.HTTP(rule)(http.NotFoundHandler())).ServeHTTP(w, originRequest())
	exposed := map[string]bool{}
	for _, line := range w.Header().Values("Access-Control-Expose-Headers") {
		exposed[line] = true
	}
	if !exposed["Location"] {
		t.Errorf("exposed: %v", exposed)
	}
}

func originRequest() *http.Request {
	r := blankRequest()
	r.Header.Set("Origin", "https://app.example")
	return r
}

// TestADeferThatIsNilIsFoundAtSetUp as a nil pointer of Bans is.
func TestADeferThatIsNilIsFoundAtSetUp(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	nethttpmw.HTTP(deferring(&fake{name: "own"}, (*storing)(nil)))
}

// TestARequestBetweenTwoRulesThatDeferIsNotAnswered: what stands between them answered, and that was taken
// for the answer of the handler, since one rule with a Defer had let the request pass.
func TestARequestBetweenTwoRulesThatDeferIsNotAnswered(t *testing.T) {
	d := &storing{stored: later}
	gate := limited(core.ReasonLimited)
	between, open := false, &fake{name: "own"}
	send := func(r *http.Request, g core.Guard) int {
		inner := nethttpmw.HTTP(deferring(g, d))(http.NotFoundHandler())
		middle := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if between {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			inner.ServeHTTP(w, r)
		})
		w := httptest.NewRecorder()
		nethttpmw.HTTP(deferring(&fake{name: "site"}, d), ruleOf(&fake{name: "other"}))(middle).ServeHTTP(w, r)
		return w.Code
	}
	if code := send(blankRequest(), gate); code != http.StatusAccepted || d.depth != 2 {
		t.Fatalf("%d, depth %d", code, d.depth)
	}
	for _, between = range []bool{true, false} {
		ctx, rerun := pipeline.WithRerun(t.Context(), d.depth)
		if send(blankRequest().WithContext(ctx), open); rerun.Answered() == between {
			t.Errorf("answered between %v: Answered is %v", between, rerun.Answered())
		}
	}
}

// TestWhatIsTheAnswerToARequestThatRunsLater: a guard's last word is, and what was done before; a rule that
// could not read the request, a list and a ban are not.
func TestWhatIsTheAnswerToARequestThatRunsLater(t *testing.T) {
	unread := ruleOf(&fake{name: "own"})
	unread.Who = func(*keyfuncs.Request) (string, error) { return "", keyfuncs.ErrMalformed }
	denied := ruleOf(&fake{name: "own"})
	denied.Deny = keyfuncs.NewList(keyfuncs.Const("ann"), "ann")
	banned := ruleOf(&fake{name: "own"})
	banned.Bans = banning{}
	sold := limited(core.ReasonSoldOut)
	sold.decision.RetryAfter = 0
	done := &refuser{fake{name: "own"}, core.Decision{Guard: "own", Allowed: true, Replayed: true, Kept: true}}
	for name, c := range map[string]struct {
		rule pipeline.Rule
		want bool
	}{
		"not read": {unread, false}, "on a list": {denied, false}, "banned": {banned, false},
		"an outage": {ruleOf(&failer{fake{name: "own"}}), false}, "sold out": {ruleOf(sold), true},
		"done before": {ruleOf(done), true},
	} {
		ctx, rerun := pipeline.WithRerun(t.Context(), 1)
		if w, ran := answerOf(blankRequest().WithContext(ctx), c.rule); rerun.Answered() != c.want || ran {
			t.Errorf("%s: %d, Answered is %v", name, w.Code, rerun.Answered())
		}
	}
}
