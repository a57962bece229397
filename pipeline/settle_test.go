package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/idempotency"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// shaky is a guard that cannot be settled for the first few times.
type shaky struct {
	fake
	failures int
	err      error
}

func (g *shaky) Settle(ctx context.Context, d core.Decision, end core.Ending) error {
	_ = g.fake.Settle(ctx, d, end)
	if len(g.ends()) <= g.failures {
		return g.err
	}
	return nil
}

// TestSettlingIsTriedAgain: for ten minutes, and no longer, unless the answer cannot change.
func TestSettlingIsTriedAgain(t *testing.T) {
	down := errors.New("no answer")
	for _, c := range []struct {
		name        string
		failures    int
		err         error
		least, most int // how often Settle is called
	}{
		{"at once", 0, nil, 1, 1},
		{"after three failures", 3, down, 4, 4},
		{"after a failover", 3, fmt.Errorf("confirm: %w", core.ErrUnconfirmed), 4, 4},
		{"never", 1000, down, 300, 320},
		{"the reservation is gone", 1000, fmt.Errorf("settle: %w", core.ErrGone), 1, 1},
		{"the decision makes no sense", 1000, fmt.Errorf("settle: %w", core.ErrInvalid), 1, 1},
	} {
		for status, ok := range map[int]bool{http.StatusOK: true, http.StatusNotFound: false} {
			synctest.Test(t, func(t *testing.T) {
				guard := &shaky{fake: fake{name: "own"}, failures: c.failures, err: c.err}
				r := httptest.NewRequest(http.MethodPost, "/", nil)
				enter(t, pipeline.New(ruleOf(guard)), r).Leave(status)
				<-time.After(time.Hour) // of the bubble's clock
				told := guard.ends()
				if len(told) < c.least || len(told) > c.most || slices.Contains(told, !ok) {
					t.Errorf("%s, %d: the guard was told %v", c.name, status, told)
				}
			})
		}
	}
}

// holding is a shaky guard whose attempts hold something for a given time.
type holding struct {
	shaky
	hold time.Duration
	last time.Time // when Settle was last called
}

func (g *holding) Settle(ctx context.Context, d core.Decision, end core.Ending) error {
	g.mu.Lock()
	g.last = time.Now()
	g.mu.Unlock()
	return g.shaky.Settle(ctx, d, end)
}

func (g *holding) Check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	d, err := g.shaky.Check(ctx, a)
	d.ResetAfter = g.hold
	return d, err
}

// TestSettlingIsTriedUntilTheHoldEnds: with fewer tries a buyer who got a yes loses the unit to an outage
// that the hold outlives.
func TestSettlingIsTriedUntilTheHoldEnds(t *testing.T) {
	for _, c := range []struct {
		hold, want time.Duration
		limit      bool
	}{
		{0, 10 * time.Minute, false}, // it does not end by itself
		{time.Second, 30 * time.Second, false},
		{5 * time.Minute, 5 * time.Minute, false},
		{24 * time.Hour, 10 * time.Minute, false},
		{24 * time.Hour, 30 * time.Second, true}, // a rate limit's window
	} {
		synctest.Test(t, func(t *testing.T) {
			guard := &holding{hold: c.hold}
			guard.shaky = shaky{fake: fake{name: "own", traits: core.Traits{KeepsOnFailure: c.limit}}, failures: 1e6,
				err: errors.New("no answer")}
			begun := time.Now()
			enter(t, pipeline.New(ruleOf(guard)),
				httptest.NewRequest(http.MethodPost, "/", nil)).Leave(http.StatusOK)
			<-time.After(time.Hour) // of the bubble's clock
			guard.mu.Lock()
			defer guard.mu.Unlock()
			if took := guard.last.Sub(begun); took < c.want-3*time.Second || took > c.want {
				t.Errorf("a hold of %v: tried for %v, want %v", c.hold, took, c.want)
			}
		})
	}
}

// TestOutcomesOfAnOutageAreAllSettled: of 2,000 requests that ended within one outage of 4 s, 1,024 were
// settled and the others forgotten.
//
// Promise (Endings): An outage loses no outcome. A claim that could not be confirmed is given back; an
// operation is kept.
func TestOutcomesOfAnOutageAreAllSettled(t *testing.T) {
	const requests = 2000
	synctest.Test(t, func(t *testing.T) {
		for _, status := range []int{http.StatusOK, http.StatusInternalServerError} {
			guard := &away{fake: fake{name: "own"}, until: time.Now().Add(4 * time.Second)}
			p := pipeline.New(ruleOf(guard))
			for range requests {
				enter(t, p, httptest.NewRequest(http.MethodPost, "/", nil)).Leave(status)
			}
			begun := time.Now()
			if err := core.Drain(t.Context()); err != nil {
				t.Error(err)
			}
			if told := len(guard.ends()); told != requests {
				t.Errorf("%d: %d requests were settled, want %d", status, told, requests)
			}
			if took := time.Since(begun); took > 7*time.Second {
				t.Errorf("%d: it took %v", status, took)
			}
		}
	})
}

// away is a guard that cannot be asked until some time.
type away struct {
	fake
	until time.Time
}

func (g *away) Settle(ctx context.Context, d core.Decision, end core.Ending) error {
	if time.Now().Before(g.until) {
		return errors.New("no answer")
	}
	return g.fake.Settle(ctx, d, end)
}

// TestNewClaimsAreRefusedBeforeOldOnesAreForgotten: when so many are under way that none could be
// remembered, new ones are refused, and their guard is not even asked. Rate limits go on.
//
// Promise (Endings): New claims are refused before old ones are lost.
func TestNewClaimsAreRefusedBeforeOldOnesAreForgotten(t *testing.T) {
	places := make([]core.Place, 0, core.PendingMost)
	defer func() {
		for i := range places {
			places[i].Free()
		}
	}()
	for {
		var place core.Place
		if err := place.Take(); err != nil {
			if !errors.Is(err, core.ErrTooManyPending) {
				t.Error(err)
			}
			break
		}
		places = append(places, place)
	}
	// Some may be taken by what other tests have left to be settled.
	if n := len(places); n > core.PendingMost || n < core.PendingMost-1000 {
		t.Errorf("%d places, want %d", n, core.PendingMost)
	}
	claim, limit := &counted{fake: fake{name: "own"}},
		&counted{fake: fake{name: "limit", traits: core.Traits{KeepsOnFailure: true}}}
	get := func(rules ...pipeline.Rule) int {
		w := httptest.NewRecorder()
		nethttpmw.HTTP(rules...)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).
			ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
		return w.Code
	}
	if code := get(ruleOf(claim)); code != http.StatusServiceUnavailable || claim.asked.Load() != 0 {
		t.Errorf("a claim: %d, and the guard was asked %d times", code, claim.asked.Load())
	}
	if code := get(ruleOf(limit)); code != http.StatusOK || limit.asked.Load() != 1 {
		t.Errorf("a rate limit: %d, and the guard was asked %d times", code, limit.asked.Load())
	}
	for range 3 { // a place that an ended request does not give back would soon be missed
		places[len(places)-1].Free()
		if code := get(ruleOf(claim)); code != http.StatusOK {
			t.Errorf("with a free place: %d", code)
		}
	}
}

// counted counts how often it is asked.
type counted struct {
	fake
	asked atomic.Int64
}

func (g *counted) Check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	g.asked.Add(1)
	return g.fake.Check(ctx, a)
}

// TestRulesThatPanicInTheEndDoNotKeepOthers: Failed is the application's, and may panic; the other rules are
// settled anyway.
func TestRulesThatPanicInTheEndDoNotKeepOthers(t *testing.T) {
	second := &fake{name: "second"}
	first := ruleOf(&fake{name: "first"})
	first.Failed = func(int) bool { panic("lost") }
	h := nethttpmw.HTTP(first, ruleOf(second))(http.NotFoundHandler())
	func() {
		defer func() { _ = recover() }()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil))
	}()
	if got := second.ends(); !slices.Equal(got, []bool{false}) {
		t.Errorf("settled as %v, want given back", got)
	}
}

// TestNothingIsTakenAfterTheEnd: Take finds no decision after the settlement. Otherwise a goroutine that a
// handler left behind would wait for the payment of a reservation that is gone.
func TestNothingIsTakenAfterTheEnd(t *testing.T) {
	guard := &fake{name: "own"}
	passage := enter(t, pipeline.New(ruleOf(guard)), httptest.NewRequest(http.MethodPost, "/", nil))
	passage.Leave(http.StatusInternalServerError)
	if d, taken := pipeline.Take(passage.Context(), "own"); taken {
		t.Errorf("taken after it was given back: %+v", d)
	}
	if _, found := pipeline.Decision(passage.Context(), "own"); !found {
		t.Error("the decision is not there any more")
	}
}

// blip lets a request of this handler end during a short outage of Redis, and drains.
func blip(
	t *testing.T, rule func(*core.Engine) pipeline.Rule, handler http.HandlerFunc,
) (ask func() *httptest.ResponseRecorder, ran *int) {
	t.Helper()
	b := redistest.Mini(t)
	faults := redistest.NewFaults(t)
	gate := core.New(b.NewClientWith(t, faults), core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute))
	ran = new(int)
	h := nethttpmw.HTTP(rule(gate))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if *ran++; *ran == 1 {
			faults.Refuse(true)
			faults.CutAll()
		}
		w.Header().Set("Set-Cookie", "session=secret")
		w.Header().Set("Location", "/orders/1")
		handler(w, r)
	}))
	ask = func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
		return w
	}
	if w := ask(); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" ||
		w.Header().Get("Set-Cookie") != "" ||
		w.Header().Get("Location") != "" || !strings.Contains(w.Body.String(), `"unavailable"`) {
		t.Errorf("what could not be confirmed is answered with %d %v %s", w.Code, w.Header(), w.Body)
	}
	faults.Heal()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := core.Drain(ctx); err != nil { // as before the end of the process
		t.Fatal(err)
	}
	return ask, ran
}

// TestSalesAreNotPromisedDuringABlip: the client is asked to try again, so the unit goes back and is there
// for the retry.
//
// Promise (Endings): A sale that cannot be confirmed is not promised.
func TestSalesAreNotPromisedDuringABlip(t *testing.T) {
	t.Parallel()
	var sale *seckill.Guard
	ask, _ := blip(t, func(gate *core.Engine) pipeline.Rule {
		sale = seckill.New(gate, "sale", seckill.Options{})
		if _, err := sale.Open(t.Context(), "t1", seckill.Sale{Stock: 1}); err != nil {
			t.Fatal(err)
		}
		return ruleOf(sale)
	}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	if status, err := sale.Status(t.Context(), "t1"); err != nil || status.Left != 1 {
		t.Errorf("%+v, %v: want the unit back", status, err)
	}
	if w := ask(); w.Code != http.StatusCreated {
		t.Errorf("again: %d %s", w.Code, w.Body)
	}
	if status, err := sale.Status(t.Context(), "t1"); err != nil || status.Sold != 1 {
		t.Errorf("%+v, %v: want the unit sold", status, err)
	}
}

// TestOutcomesSurviveABlip: the operation has been done, so a short outage of Redis at that moment must not
// let the client begin it again. The whole answer is kept, as long as the handler wrote it without an error.
func TestOutcomesSurviveABlip(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		status  int
		body    string
	}{
		"a body":   {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("done")) }, 200, "done"},
		"a status": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }, 201, ""},
		"in parts": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "do"); fmt.Fprint(w, "ne") }, 200,
			"done"},
		"nothing": {func(http.ResponseWriter, *http.Request) {}, 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ask, ran := blip(t, func(gate *core.Engine) pipeline.Rule {
				return keeping(idempotency.New(gate, "once", idempotency.Options{MaxBody: 10}))
			}, c.handler)
			w := ask()
			if w.Code != c.status || w.Body.String() != c.body || *ran != 1 ||
				w.Header().Get("Location") != "/orders/1" {
				t.Errorf("again: %d %s, and the handler ran %d times", w.Code, w.Body, *ran)
			}
		})
	}
}
