package pipeline_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// quietly keeps what a test breaks on purpose out of the log.
func quietly(t *testing.T) {
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(new(bytes.Buffer), nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
}

type unobserved struct{}

func (unobserved) Observe(context.Context, core.Event) {}

// TestPoliciesInEveryOutage sends requests to routes of each policy before, during and after each kind of
// outage; in its course the breaker opens, and the answers stay what they are. A purchase that is under way
// meanwhile is confirmed in the end.
//
// Promise (Outages): A rule handles an outage by its policy.
func TestPoliciesInEveryOutage(t *testing.T) {
	t.Parallel()
	quietly(t)
	o := redistest.StartOutages(t)
	for _, kind := range redistest.OutageKinds {
		if !redistest.All() && !slices.Contains([]string{"stopped", "hanging", "full"}, kind) {
			continue
		}
		t.Run(kind, func(t *testing.T) {
			deadline := 500 * time.Millisecond
			if kind == "full" { // a full Redis answers at once
				deadline = time.Minute
			}
			e := core.New(o.NewClient(true), core.WithPrefix("p-"+kind), core.WithDeadline(deadline),
				core.WithObserver(unobserved{}), core.WithBreaker(0, 50*time.Millisecond))
			done := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
			mux := http.NewServeMux()
			for path, policy := range map[string]core.Outage{
				"/closed": core.FailClosed, "/open": core.FailOpen, "/local": core.FailLocal,
			} {
				mux.Handle(path, nethttpmw.HTTP(pipeline.Rule{
					Guard: limit.NewSlidingWindow(e, path[1:], limit.PerHour(3)), Who: keyfuncs.Query("who"),
					OnOutage: policy,
				})(done))
			}
			sale := seckill.New(e, "sale", seckill.Options{})
			paying, paid := make(chan struct{}), make(chan struct{})
			mux.Handle("/buy", nethttpmw.HTTP(pipeline.Rule{Guard: sale, Who: keyfuncs.Query("who"),
				What: keyfuncs.Const("tv")})(
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					close(paying)
					<-paid
				})))
			send := func(path string) *httptest.ResponseRecorder {
				w := httptest.NewRecorder()
				mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, nil))
				return w
			}
			want := func(path string, status int) {
				t.Helper()
				w := send(path)
				if retry := w.Header().Get("Retry-After") != ""; w.Code != status || retry != (status != http.StatusOK) {
					t.Fatalf("%s: %d %v, want %d", path, w.Code, w.Header(), status)
				}
			}
			decides := func(what string) {
				t.Helper()
				redistest.Eventually(t, time.Minute,
					func() bool { return send("/closed?who="+rand.Text()).Code == http.StatusOK }, what)
			}
			decides("Redis is asked")
			redistest.Eventually(t, time.Minute, func() bool {
				_, err := sale.Open(t.Context(), "tv", seckill.Sale{Stock: 5})
				return err == nil
			}, "the sale is open")
			bought := make(chan int)
			go func() {
				for { // a check that was too late on a busy machine is undone, and made again
					code := send("/buy?who=ann").Code
					select {
					case <-paying:
						bought <- code
						return
					default:
					}
				}
			}()
			<-paying
			want("/local?who=ann", http.StatusOK)

			end := o.Begin(kind)
			for i := range 20 {
				want("/closed?who=bob", http.StatusServiceUnavailable)
				want("/open?who=bob", http.StatusOK)
				if i < 3 {
					want("/local?who=bob", http.StatusOK)
				} else {
					want("/local?who=bob", http.StatusTooManyRequests)
				}
			}
			close(paid)
			heard := http.StatusServiceUnavailable // a yes could not be confirmed
			if kind == "full" {                    // a full Redis confirms what it holds: that takes no memory
				heard = http.StatusOK
			}
			if code := <-bought; code != heard {
				t.Errorf("who was let through before hears %d, want %d", code, heard)
			}
			end()
			decides("Redis is asked again")
			if kind == "stopped" { // and has lost the sale: the test's servers do not persist
				return
			}
			var status seckill.Status
			redistest.Eventually(t, 2*time.Minute, func() (free bool) {
				status, _ = sale.Status(t.Context(), "tv")
				return status.Held == 0 && status.Left+status.Sold == 5
			}, "the purchase is cancelled")
			if sold := heard == http.StatusOK; sold != (status.Sold > 0) && kind != "hanging" {
				t.Errorf("%+v", status) // one that hangs may have got a confirmation whose reply did not come back
			}
		})
	}
}
