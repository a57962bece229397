package nethttpmw_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/redistest"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
)

// shaky is a guard that can not be settled for the first few times.
type shaky struct {
	fake
	failures int
	err      error
}

func (g *shaky) Settle(ctx context.Context, d core.Decision, ok bool) error {
	_ = g.fake.Settle(ctx, d, ok)
	if len(g.ends()) <= g.failures {
		return g.err
	}
	return nil
}

// TestSettlingIsTriedAgain: for half a minute, and no longer, unless the answer can not change.
func TestSettlingIsTriedAgain(t *testing.T) {
	down := errors.New("no answer")
	for _, c := range []struct {
		name        string
		failures    int
		err         error
		least, most int // how often the guard is told
	}{
		{"at once", 0, nil, 1, 1},
		{"after three failures", 3, down, 4, 4},
		{"after a failover", 3, fmt.Errorf("confirm: %w", core.ErrUnconfirmed), 4, 4},
		{"never", 1000, down, 10, 30},
		{"the reservation is gone", 1000, fmt.Errorf("settle: %w", core.ErrGone), 1, 1},
		{"the decision makes no sense", 1000, fmt.Errorf("settle: %w", core.ErrInvalidAttempt), 1, 1},
	} {
		for status, ok := range map[int]bool{http.StatusOK: true, http.StatusNotFound: false} {
			synctest.Test(t, func(t *testing.T) {
				guard := &shaky{fake: fake{name: "own"}, failures: c.failures, err: c.err}
				r := httptest.NewRequest(http.MethodPost, "/", nil)
				enter(t, nethttpmw.NewPipeline(ruleOf(guard)), r).Leave(status)
				<-time.After(time.Hour) // of the bubble's clock
				told := guard.ends()
				if len(told) < c.least || len(told) > c.most || slices.Contains(told, !ok) {
					t.Errorf("%s, %d: the guard was told %v", c.name, status, told)
				}
			})
		}
	}
}

// holding is a shaky guard whose attempts hold something for so long.
type holding struct {
	shaky
	hold time.Duration
	last time.Time // when it was told how an attempt ended
}

func (g *holding) Settle(ctx context.Context, d core.Decision, ok bool) error {
	g.mu.Lock()
	g.last = time.Now()
	g.mu.Unlock()
	return g.shaky.Settle(ctx, d, ok)
}

func (g *holding) Check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	d, err := g.shaky.Check(ctx, a)
	d.ResetAfter = g.hold
	return d, err
}

// TestSettlingIsTriedUntilTheHoldEnds: no shorter, or a buyer who was told yes loses his unit to an outage that his hold outlives.
func TestSettlingIsTriedUntilTheHoldEnds(t *testing.T) {
	for _, c := range []struct {
		hold, want time.Duration
		limit      bool
	}{
		{0, 30 * time.Second, false},
		{time.Second, 30 * time.Second, false},
		{5 * time.Minute, 5 * time.Minute, false},
		{24 * time.Hour, 10 * time.Minute, false},
		{24 * time.Hour, 30 * time.Second, true}, // a rate limit's window
	} {
		synctest.Test(t, func(t *testing.T) {
			guard := &holding{hold: c.hold}
			guard.shaky = shaky{fake: fake{name: "own", traits: core.Traits{KeepsOnFailure: c.limit}}, failures: 1e6, err: errors.New("no answer")}
			begun := time.Now()
			enter(t, nethttpmw.NewPipeline(ruleOf(guard)), httptest.NewRequest(http.MethodPost, "/", nil)).Leave(http.StatusOK)
			<-time.After(time.Hour) // of the bubble's clock
			guard.mu.Lock()
			defer guard.mu.Unlock()
			if took := guard.last.Sub(begun); took < c.want-3*time.Second || took > c.want {
				t.Errorf("a hold of %v: tried for %v, want %v", c.hold, took, c.want)
			}
		})
	}
}

// TestLongOutagesDoNotFillTheMemory: so many decisions wait to be settled, and no more.
func TestLongOutagesDoNotFillTheMemory(t *testing.T) {
	const requests, waiting = 1100, 1024
	synctest.Test(t, func(t *testing.T) {
		guard := &shaky{fake: fake{name: "own"}, failures: requests, err: errors.New("no answer")}
		p := nethttpmw.NewPipeline(ruleOf(guard))
		for range requests {
			enter(t, p, httptest.NewRequest(http.MethodPost, "/", nil)).Leave(http.StatusOK)
		}
		<-time.After(time.Hour)
		// A test before this one may still have a decision or two that wait.
		if again := len(guard.ends()) - requests; again > waiting || again < waiting/2 {
			t.Errorf("the guard was told %d times again, want %d", again, waiting)
		}
	})
}

// TestRulesThatPanicInTheEndDoNotKeepOthers: Failed is the application's, and may panic; the other rules are settled anyway.
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

// TestNothingIsTakenAfterTheEnd: what has been settled is nobody's to settle any more. A goroutine that a handler left behind
// would wait for a payment for a reservation that is gone.
func TestNothingIsTakenAfterTheEnd(t *testing.T) {
	guard := &fake{name: "own"}
	passage := enter(t, nethttpmw.NewPipeline(ruleOf(guard)), httptest.NewRequest(http.MethodPost, "/", nil))
	passage.Leave(http.StatusInternalServerError)
	if d, taken := nethttpmw.Take(passage.Context(), "own"); taken {
		t.Errorf("taken after it was given back: %+v", d)
	}
	if _, found := nethttpmw.Decision(passage.Context(), "own"); !found {
		t.Error("the decision is not there any more")
	}
}

// TestSalesSurviveABlip: the client has been told that he has the unit, so a Redis that is away for a moment when the request
// ends must not give the unit to somebody else when the hold is over.
func TestSalesSurviveABlip(t *testing.T) {
	b := redistest.Mini(t)
	faults := redistest.NewFaults(t)
	gate := core.New(b.NewClientWith(t, faults), core.WithPrefix(b.Prefix), core.WithDeadline(time.Second))
	sale := gate.Seckill("sale", core.SeckillOptions{})
	if _, err := sale.Open(t.Context(), "t1", core.Sale{Stock: 1}); err != nil {
		t.Fatal(err)
	}
	h := nethttpmw.HTTP(ruleOf(sale))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		faults.Refuse(true)
		faults.CutAll()
	}))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	faults.Heal()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := core.Drain(ctx); err != nil { // as before the end of the process
		t.Fatal(err)
	}
	if status, err := sale.Status(t.Context(), "t1"); err != nil || status.Sold != 1 {
		t.Errorf("%+v, %v: want the unit sold", status, err)
	}
}

// TestOutcomesSurviveABlip: the client has had his answer, so a Redis that is away for a moment when the request ends must not let
// him begin the operation again.
func TestOutcomesSurviveABlip(t *testing.T) {
	b := redistest.Mini(t)
	faults := redistest.NewFaults(t)
	gate := core.New(b.NewClientWith(t, faults), core.WithPrefix(b.Prefix), core.WithDeadline(5*time.Second))
	ran := 0
	h := nethttpmw.HTTP(keeping(gate.Idempotency("once", core.IdempotencyOptions{MaxBody: 10})))(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			ran++
			faults.Refuse(true)
			faults.CutAll()
			_, _ = w.Write([]byte("done"))
		}))
	ask := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
		return w
	}
	if w := ask(); w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	faults.Heal()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := core.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	if w := ask(); w.Code != http.StatusOK || w.Body.String() != "done" || ran != 1 {
		t.Errorf("again: %d %s, and the handler ran %d times", w.Code, w.Body, ran)
	}
}
