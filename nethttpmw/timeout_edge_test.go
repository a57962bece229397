package nethttpmw_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/timed"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
)

// TestBuyersAtTheEndOfATimeout: handlers end when the time of their http.TimeoutHandler does. Of 300 buyers,
// up to 254 had a unit while 214 heard of it. What is left is the moment between the last look at the context
// and TimeoutHandler's choice. In the soak run it prints how many, of many.
//
// Promise (Endings): A claim confirmed while an `http.TimeoutHandler` ended is taken back.
func TestBuyersAtTheEndOfATimeout(t *testing.T) {
	rounds := 1
	if redistest.Soak() {
		rounds = 20
	}
	timed.Test(t, 20*time.Millisecond, func(t *timed.T) { buyersAtTheEnd(t, rounds) })
}

func buyersAtTheEnd(t *timed.T, rounds int) {
	const buyers, limit = 300, 150 * time.Millisecond
	b := redistest.Single(t)
	e := core.New(b.NewClient(t), core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute),
		core.WithObserver(guardtest.Ignore{}))
	for round := range rounds {
		sale := seckill.New(e, fmt.Sprint("edge-", round), seckill.Options{})
		if _, err := sale.Open(t.Context(), "tv", seckill.Sale{Stock: buyers}); err != nil {
			t.Fatal(err)
		}
		rule := nethttpmw.Rule{Guard: sale, Who: keyfuncs.Query("who"), What: keyfuncs.Const("tv")}
		var heard atomic.Int64
		var all sync.WaitGroup
		inner := nethttpmw.HTTP(rule)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			end, _ := r.Context().Deadline()
			// The edge of a real timeout: a confirmation takes as long on a busy machine.
			time.Sleep(time.Until(end) - rand.N(limit/15)) //nolint:forbidigo // see above
			w.WriteHeader(http.StatusCreated)
		}))
		app := http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer all.Done() // it goes on when its client has been answered
			inner.ServeHTTP(w, r)
		}), limit, "too late")
		for i := range buyers {
			all.Add(1) // for the request, which begins in any case
			all.Go(func() {
				w := httptest.NewRecorder()
				app.ServeHTTP(w, httptest.NewRequest(http.MethodPost, fmt.Sprint("/?who=", i), nil))
				if w.Code == http.StatusCreated {
					heard.Add(1)
				}
			})
		}
		all.Wait()
		if err := e.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		status, err := sale.Status(t.Context(), "tv")
		if err != nil || status.Held != 0 {
			t.Fatalf("%+v, %v", status, err)
		}
		lost := status.Sold - heard.Load()
		t.Logf("%d heard 201, %d units are sold: %d too many", heard.Load(), status.Sold, lost)
		if lost < 0 || lost > buyers/10 {
			t.Errorf("%d units are sold, %d buyers heard of it", status.Sold, heard.Load())
		}
	}
}
