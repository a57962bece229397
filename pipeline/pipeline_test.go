package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/warntest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// enter takes a request through the rules, and expects it to pass.
func enter(t *testing.T, p *pipeline.Pipeline, r *http.Request) *pipeline.Passage {
	t.Helper()
	passage, refusal := p.Enter(&keyfuncs.Request{Request: r})
	if refusal != nil {
		t.Fatalf("refused: %+v", refusal)
	}
	return passage
}

func TestOnlyTheFirstLeaveCounts(t *testing.T) {
	guard := &fake{name: "own"}
	passage := enter(t, pipeline.New(ruleOf(guard)), httptest.NewRequest(http.MethodPost, "/", nil))
	passage.Leave(http.StatusOK)
	passage.Leave(http.StatusInternalServerError)
	if got := guard.ends(); !slices.Equal(got, []bool{true}) {
		t.Errorf("settled as %v", got)
	}
}

// TestClientsThatGoDoNotStopTheChecks: a check that is cancelled halfway might have taken something.
func TestClientsThatGoDoNotStopTheChecks(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	guard := &alive{fake: fake{name: "own"}}
	r := httptest.NewRequest(http.MethodPost, "/", nil).WithContext(ctx)
	passage := enter(t, pipeline.New(ruleOf(guard)), r)
	if passage.Context().Err() == nil {
		t.Error("the handler does not hear that the client has gone")
	}
	passage.Leave(http.StatusOK)
	if got := guard.ends(); !slices.Equal(got, []bool{false}) {
		t.Errorf("settled as %v", got)
	}
	if guard.ended {
		t.Error("the guard was called with a context that is over")
	}
}

// alive is a guard that records whether the context was over when it was called.
type alive struct {
	fake
	ended bool
}

func (g *alive) Check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	g.ended = g.ended || ctx.Err() != nil
	return g.fake.Check(ctx, a)
}

func (g *alive) Settle(ctx context.Context, d core.Decision, end core.Ending) error {
	g.ended = g.ended || ctx.Err() != nil
	return g.fake.Settle(ctx, d, end)
}

func TestRulesAreCopiedAtSetUp(t *testing.T) {
	first, second := &fake{name: "first"}, &fake{name: "second"}
	rules := []pipeline.Rule{ruleOf(first)}
	p := pipeline.New(rules...)
	rules[0] = ruleOf(second)
	passage := enter(t, p, httptest.NewRequest(http.MethodPost, "/", nil))
	defer passage.Leave(http.StatusOK)
	if _, found := pipeline.Decision(passage.Context(), "first"); !found {
		t.Error("the rule is not the one that the pipeline was made with")
	}
}

func TestSettlesTellsWhetherStatusesMatter(t *testing.T) {
	claim := ruleOf(&fake{name: "claim"})
	limit := ruleOf(&fake{name: "limit", traits: core.Traits{KeepsOnFailure: true}})
	counting := limit
	counting.Guard = &fake{name: "counting", traits: core.Traits{KeepsOnFailure: true}}
	counting.Failed = func(int) bool { return true }
	for _, c := range []struct {
		name  string
		rules []pipeline.Rule
		want  bool
	}{
		{"a limit", []pipeline.Rule{limit}, false},
		{"a limit with Failed", []pipeline.Rule{counting}, true},
		{"a claim", []pipeline.Rule{claim}, true},
		{"a limit and a claim", []pipeline.Rule{limit, claim}, true},
	} {
		if got := pipeline.New(c.rules...).Settles(); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

func TestRefusalsSayWhatTheGuardSaid(t *testing.T) {
	decision := core.Decision{Guard: "own", Reason: "members_only", Limit: 7}
	p := pipeline.New(ruleOf(&refuser{decision: decision}))
	passage, refusal := p.Enter(&keyfuncs.Request{Request: httptest.NewRequest(http.MethodPost, "/", nil)})
	if passage != nil || refusal == nil {
		t.Fatalf("%v, %v", passage, refusal)
	}
	if refusal.Status != http.StatusForbidden || refusal.Reason != "members_only" ||
		refusal.Decision.Limit != 7 {
		t.Errorf("%+v", refusal)
	}
}

type refuser struct {
	fake
	decision core.Decision
}

func (g *refuser) Check(context.Context, core.Attempt) (core.Decision, error) { return g.decision, nil }

func TestContextsWithoutRulesHaveNoDecisions(t *testing.T) {
	if d, found := pipeline.Decision(t.Context(), "own"); found {
		t.Errorf("Decision: %+v", d)
	}
	if d, found := pipeline.Take(t.Context(), "own"); found {
		t.Errorf("Take: %+v", d)
	}
}

// TestKeyFunctionsThatPanicGiveBack: the handler has not run, so what the rules before had taken goes back.
//
// Promise (Endings): A panic before the header gives back.
func TestKeyFunctionsThatPanicGiveBack(t *testing.T) {
	first := &fake{name: "first"}
	second := ruleOf(&fake{name: "second"})
	second.Cost = func(*keyfuncs.Request) (int64, error) { panic("lost") }
	h := nethttpmw.HTTP(ruleOf(first), second)(http.NotFoundHandler())
	func() {
		defer func() {
			if value := recover(); value != "lost" {
				t.Errorf("panic %v", value)
			}
		}()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil))
	}()
	if got := first.ends(); !slices.Equal(got, []bool{false}) {
		t.Errorf("settled as %v, want given back", got)
	}
}

// TestGuardsNeedNotNameThemselves: the decision of an application's own guard is found by the guard's name,
// and the refusal has the name as well, when the guard leaves Decision.Guard empty.
func TestGuardsNeedNotNameThemselves(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	allowing := &refuser{fake: fake{name: "own"}, decision: core.Decision{Allowed: true}}
	passage := enter(t, pipeline.New(ruleOf(allowing)), r)
	defer passage.Leave(http.StatusOK)
	if _, found := pipeline.Decision(passage.Context(), "own"); !found {
		t.Error("the handler does not find the decision")
	}
	refusing := &refuser{fake: fake{name: "own"}}
	_, refusingRefusal := pipeline.New(ruleOf(refusing)).Enter(&keyfuncs.Request{Request: r})
	if refusal := refusingRefusal; refusal.Decision.Guard != "own" {
		t.Errorf("the refusal is of guard %q", refusal.Decision.Guard)
	}
	failing := &failer{fake{name: "own"}}
	_, failingRefusal := pipeline.New(ruleOf(failing)).Enter(&keyfuncs.Request{Request: r})
	if refusal := failingRefusal; refusal.Decision.Guard != "own" {
		t.Errorf("the refusal is of guard %q", refusal.Decision.Guard)
	}
}

type failer struct{ fake }

func (g *failer) Check(context.Context, core.Attempt) (core.Decision, error) {
	return core.Decision{}, io.ErrUnexpectedEOF
}

// TestRoutesThatAreNotKnownYetAreWarnedOf: around a router of net/http, and in Use of chi, no pattern has
// been matched yet.
func TestRoutesThatAreNotKnownYetAreWarnedOf(t *testing.T) {
	for name, around := range map[string]func(pipeline.Rule) http.Handler{
		"ServeMux": func(rule pipeline.Rule) http.Handler {
			mux := http.NewServeMux()
			mux.HandleFunc("/polls/{poll}", func(http.ResponseWriter, *http.Request) {})
			return nethttpmw.HTTP(rule)(mux)
		},
		"chi": func(rule pipeline.Rule) http.Handler {
			router := chi.NewRouter()
			router.Use(nethttpmw.HTTP(rule))
			router.Get("/polls/{poll}", func(http.ResponseWriter, *http.Request) {})
			return router
		},
	} {
		t.Run(name, func(t *testing.T) {
			log := warntest.Record(t)
			rule := ruleOf(&fake{name: "own"})
			rule.What = keyfuncs.Route()
			handler := around(rule)
			for range 3 {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/polls/final", nil))
				if w.Code != http.StatusBadRequest {
					t.Errorf("%d %s", w.Code, w.Body)
				}
			}
			log.Want(t, "GH005")
		})
	}
}

// TestOriginMayBeMissing: the decision does not need the origin, but a malformed one is refused as
// everywhere.
func TestOriginMayBeMissing(t *testing.T) {
	for _, c := range []struct {
		name   string
		origin keyfuncs.Func
		want   string
		refuse core.Reason
	}{
		{"not asked for", nil, "", ""},
		{"found", keyfuncs.Const("phone 7"), "phone 7", ""},
		{"missing", keyfuncs.Header("X-Device"), "", ""},
		{"malformed", func(*keyfuncs.Request) (string, error) { return "x", keyfuncs.ErrMalformed }, "",
			answers.ReasonMalformed},
		{"the function's own error", func(*keyfuncs.Request) (string, error) { return "", context.Canceled }, "",
			answers.ReasonUnavailable},
	} {
		rule := ruleOf(&fake{name: "own"})
		rule.Origin = c.origin
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		passage, refusal := pipeline.New(rule).Enter(&keyfuncs.Request{Request: r})
		switch {
		case refusal != nil:
			if refusal.Reason != c.refuse {
				t.Errorf("%s: refused as %q, want %q", c.name, refusal.Reason, c.refuse)
			}
		case c.refuse != "":
			t.Errorf("%s: not refused", c.name)
		default:
			if d, found := pipeline.Decision(passage.Context(), "own"); !found || d.Attempt.Origin != c.want {
				t.Errorf("%s: %+v", c.name, d.Attempt)
			}
			passage.Leave(http.StatusOK)
		}
	}
}

// TestErrorsOfCostSayWhatTheClientDidWrong: a body that the cost's function could not read whole was answered as
// if it were nonsense.
func TestErrorsOfCostSayWhatTheClientDidWrong(t *testing.T) {
	for err, want := range map[error]core.Reason{
		errors.New("a quantity is 1 to 5"):                       answers.ReasonInvalid,
		fmt.Errorf("the query: %w", keyfuncs.ErrTooLarge):        answers.ReasonTooLarge,
		fmt.Errorf("the query: %w", keyfuncs.ErrMalformed):       answers.ReasonMalformed,
		fmt.Errorf("the quantity: %w", keyfuncs.ErrMissing):      answers.ReasonInvalid,
		fmt.Errorf("the quantity: %w", context.DeadlineExceeded): answers.ReasonInvalid,
	} {
		rule := ruleOf(&fake{name: "own"})
		rule.Cost = func(*keyfuncs.Request) (int64, error) { return 0, err }
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		_, refusal := pipeline.New(rule).Enter(&keyfuncs.Request{Request: r})
		if refusal == nil || refusal.Reason != want {
			t.Errorf("%v: %+v, want %q", err, refusal, want)
		}
	}
}
