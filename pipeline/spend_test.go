package pipeline_test

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// tokensOf is a limit of 100 tokens an hour, and a rule that expects a request to cost ten.
func tokensOf(gate *core.Engine) (*limit.SlidingWindow, pipeline.Rule) {
	g := limit.NewSlidingWindow(gate, "tokens", limit.PerHour(100))
	rule := ruleOf(g)
	rule.Cost = func(*keyfuncs.Request) (int64, error) { return 10, nil }
	return g, rule
}

// serving serves one request.
func serving(rule pipeline.Rule, handler func(w http.ResponseWriter, r *http.Request)) {
	nethttpmw.HTTP(rule)(http.HandlerFunc(handler)).ServeHTTP(httptest.NewRecorder(),
		httptest.NewRequest(http.MethodPost, "/", nil))
}

func wantLeft(t *testing.T, g *limit.SlidingWindow, want int64) {
	t.Helper()
	d, err := g.Peek(t.Context(), core.Attempt{Actor: "ann", Resource: "t1"})
	if err != nil || d.Remaining != want {
		t.Errorf("%d left, %v: want %d", d.Remaining, err, want)
	}
}

// TestSpendOfManyGoroutinesAddsUp while a response is streamed, and a sum that is too large counts as the
// largest.
//
// Promise (Rate limits): Calls of `nethttpmw.Spend` add up, from any goroutine, and are settled in one round
// trip after the handler. A later call is an error.
func TestSpendOfManyGoroutinesAddsUp(t *testing.T) {
	g, rule := tokensOf(core.NewMemory())
	serving(rule, func(_ http.ResponseWriter, r *http.Request) {
		var all sync.WaitGroup
		for range 25 {
			all.Go(func() {
				if err := pipeline.Spend(r.Context(), "tokens", 2); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	})
	wantLeft(t, g, 50)
	serving(rule, func(_ http.ResponseWriter, r *http.Request) {
		for _, n := range []int64{1, math.MaxInt64, core.MaxAmount, math.MaxInt64, 0} {
			if err := pipeline.Spend(r.Context(), "tokens", n); err != nil {
				t.Error(err)
			}
		}
	})
	wantLeft(t, g, 0)
}

// TestSpendAfterTheEndIsAnError: a goroutine that outlives its handler learns that nobody counts any more,
// and a handler that has taken the decision settles it itself.
func TestSpendAfterTheEndIsAnError(t *testing.T) {
	g, rule := tokensOf(core.NewMemory())
	var late *http.Request
	serving(rule, func(_ http.ResponseWriter, r *http.Request) { late = r })
	if err := pipeline.Spend(late.Context(), "tokens", 50); !errors.Is(err, core.ErrGone) {
		t.Errorf("after the end: %v, want an ErrGone", err)
	}
	wantLeft(t, g, 90)

	serving(rule, func(_ http.ResponseWriter, r *http.Request) {
		d, _ := pipeline.Take(r.Context(), "tokens")
		if err := pipeline.Spend(r.Context(), "tokens", 50); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("after Take: %v, want an ErrInvalid", err)
		}
		if err := g.Spend(r.Context(), d, 20); err != nil {
			t.Error(err)
		}
	})
	wantLeft(t, g, 70)
}

// TestSpendWhereNothingCounts is no error: the rule let the request pass undecided.
func TestSpendWhereNothingCounts(t *testing.T) {
	g, rule := tokensOf(core.NewMemory())
	rule.Who, rule.NoKey = keyfuncs.Header("X-Member"), pipeline.NoKeySkip
	serving(rule, func(_ http.ResponseWriter, r *http.Request) {
		if err := pipeline.Spend(r.Context(), "tokens", 50); err != nil {
			t.Error(err)
		}
	})
	if err := pipeline.Spend(t.Context(), "tokens", 50); err != nil {
		t.Errorf("without a middleware: %v", err)
	}
	wantLeft(t, g, 100)
}

// TestCostsOfThreeLimitsTakeOneRoundTrip: what a request has cost goes to all its limits at once.
func TestCostsOfThreeLimitsTakeOneRoundTrip(t *testing.T) {
	b := redistest.Single(t)
	p := newProcess(t, b, true, core.WithPrefix(fmt.Sprint(b.Prefix, "spend")))
	guards := p.windows("abc", 100)
	p.ready(t, guards...)
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		for i, name := range []string{"a", "b", "c"} {
			if err := pipeline.Spend(r.Context(), name, int64(2*i)); err != nil {
				t.Error(err)
			}
		}
	})
	nethttpmw.HTTP(perActor(guards, "ann")...)(handler).ServeHTTP(httptest.NewRecorder(),
		httptest.NewRequest(http.MethodPost, "/", nil))
	p.want(t, 2, "three limits and their costs")
	p.wantSeen(t, "a check", "b check", "c check", "a settle", "b settle", "c settle")
	for i, g := range guards {
		wantUsed(t, g, "ann", int64(2*i))
	}
}
