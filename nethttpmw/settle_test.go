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
	redistest.Eventually(t, 10*time.Second, func() bool {
		status, err := sale.Status(t.Context(), "t1")
		return err == nil && status.Sold == 1
	}, "the unit to be sold")
}
