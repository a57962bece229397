package deferred_test

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/warntest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
	"github.com/gatehouse-go/gatehouse/pipeline/deferred"
)

// TestACrossSiteRequestIsRefusedWhenItRunsLater, as it would have been at once: without Origin and
// Sec-Fetch-Site it ran as the victim.
//
// Promise: A stored request is judged as at once: it keeps method, target, host, peer, TLS and all other
// fields.
func TestACrossSiteRequestIsRefusedWhenItRunsLater(t *testing.T) {
	for name, header := range map[string]string{
		"Sec-Fetch-Site": "Sec-Fetch-Site: cross-site", "Origin": "Origin: https://evil.example",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, redistest.Mini(t), delay.Options{}, nil)
			w.inside = http.NewCrossOriginProtection().Handler
			forged := w.defers("forged", header)
			own := w.defers("own", "Sec-Fetch-Site: same-origin", "Origin: http://example.com")
			w.gate.open.Store(true)
			w.work()
			if to := w.wantState(forged, deferred.StateDone); to.Code != http.StatusForbidden {
				t.Errorf("the forged request: %d %s", to.Code, to.Body)
			}
			if to := w.wantState(own, deferred.StateDone); to.Code != http.StatusCreated {
				t.Errorf("the user's own request: %d %s", to.Code, to.Body)
			}
			if got := w.runs(); len(got) != 1 || got[0] != "ann POST /exports?q=1 own" {
				t.Errorf("ran: %q", got)
			}
		})
	}
}

// TestARequestRunsLaterBehindARedirectToHTTPS: without X-Forwarded-Proto the answer that was kept was 308.
func TestARequestRunsLaterBehindARedirectToHTTPS(t *testing.T) {
	for name, secure := range map[string]func(*http.Request) bool{
		"X-Forwarded-Proto": func(r *http.Request) bool { return r.Header.Get("X-Forwarded-Proto") == "https" },
		"TLS": func(r *http.Request) bool {
			return r.TLS != nil && r.TLS.ServerName == "shop.example"
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, redistest.Mini(t), delay.Options{}, nil)
			w.outside = func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(to http.ResponseWriter, r *http.Request) {
					if !secure(r) && r.Method == http.MethodPost {
						http.Redirect(to, r, "https://"+r.Host+r.RequestURI, http.StatusPermanentRedirect)
						return
					}
					next.ServeHTTP(to, r)
				})
			}
			r := newPost("ann", "rows", "X-Forwarded-Proto: https")
			r.TLS = &tls.ConnectionState{HandshakeComplete: true, ServerName: "shop.example"}
			location := w.defersIt(r)
			w.gate.open.Store(true)
			w.work()
			if to := w.wantState(location, deferred.StateDone); to.Code != http.StatusCreated || len(w.runs()) != 1 {
				t.Errorf("%d %v, ran %q", to.Code, to.Header(), w.runs())
			}
		})
	}
}

// TestARequestRunsLaterBehindARuleByAddress: without the field by which the proxy names the client, the
// answer that was kept was 400.
func TestARequestRunsLaterBehindARuleByAddress(t *testing.T) {
	b := redistest.Mini(t)
	w := newWorld(t, b, delay.Options{}, nil)
	site := pipeline.Rule{
		Guard: limit.NewSlidingWindow(guardtest.NewEngine(b), "site", limit.PerHour(100)),
		Who:   keyfuncs.IP(keyfuncs.TrustProxies("192.0.2.1"), keyfuncs.ReadHeader("CF-Connecting-IP")),
	}
	var seen []string
	judged := func(next http.Handler) http.Handler {
		return nethttpmw.HTTP(site)(http.HandlerFunc(func(to http.ResponseWriter, r *http.Request) {
			if d, ok := pipeline.Decision(r.Context(), "site"); ok && r.Method == http.MethodPost {
				seen = append(seen, d.Attempt.Actor)
			}
			next.ServeHTTP(to, r)
		}))
	}
	w.outside = judged
	location := w.defers("rows", "CF-Connecting-IP: 203.0.113.7")
	w.gate.open.Store(true)
	w.outside, w.behind = nil, judged // pages are asked without the proxy
	w.work()
	if to := w.wantState(location, deferred.StateDone); to.Code != http.StatusCreated {
		t.Errorf("%d %s", to.Code, to.Body)
	}
	if !slices.Equal(seen, []string{"203.0.113.7", "203.0.113.7"}) || len(w.runs()) != 1 {
		t.Errorf("counted as %q, ran %q", seen, w.runs())
	}
}

// TestAnAnswerThatNoHandlerGaveIsAFailure: its client was told "done", and the handler never ran.
//
// Promise: An answer from in front of the rule that deferred is a failure and logged. 429, and 500 and above,
// are tried again first.
func TestAnAnswerThatNoHandlerGaveIsAFailure(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusPermanentRedirect, http.StatusUnauthorized,
		http.StatusNotFound} {
		w := newWorld(t, redistest.Mini(t), delay.Options{}, nil)
		w.behind = answering(status)
		location := w.defers("rows")
		w.gate.open.Store(true)
		w.work()
		if to := w.wantState(location, deferred.StateFailed); to.Code != http.StatusInternalServerError {
			t.Errorf("%d: %d %s", status, to.Code, to.Body)
		}
		if len(w.runs()) > 0 {
			t.Errorf("%d: ran %q", status, w.runs())
		}
	}
}

// TestAnAnswerThatNoHandlerGaveIsTriedAgain where its status says that this may help.
func TestAnAnswerThatNoHandlerGaveIsTriedAgain(t *testing.T) {
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		w := newWorld(t, redistest.Mini(t), delay.Options{}, nil)
		var refused atomic.Bool
		w.behind = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(to http.ResponseWriter, r *http.Request) {
				if refused.CompareAndSwap(false, true) {
					to.WriteHeader(status)
					return
				}
				next.ServeHTTP(to, r)
			})
		}
		location := w.defers("rows")
		w.gate.open.Store(true)
		w.work()
		if to := w.wantState(location, deferred.StateDone); to.Code != http.StatusCreated || len(w.runs()) != 1 {
			t.Errorf("%d: %d %s, ran %q", status, to.Code, to.Body, w.runs())
		}
	}
}

// TestAnAnswerThatNoHandlerGaveIsLogged, and is the reason that an operator sees.
func TestAnAnswerThatNoHandlerGaveIsLogged(t *testing.T) {
	log := warntest.Record(t)
	w := newWorld(t, redistest.Mini(t), delay.Options{}, nil)
	w.behind = answering(http.StatusUnavailableForLegalReasons)
	location := w.defers("rows")
	w.gate.open.Store(true)
	w.work()
	w.wantState(location, deferred.StateFailed)
	dead, err := w.queue.Peek(t.Context(), delay.Dead, 1)
	if err != nil || len(dead) != 1 || !strings.Contains(dead[0].Reason, "did not run: status 451") {
		t.Errorf("%+v, %v", dead, err)
	}
	said := log.String()
	if strings.Count(said, `"level":"ERROR"`) != 1 || !strings.Contains(said, "status 451") ||
		!strings.Contains(said, `"queue":"deferred","task":"`+dead[0].ID+`"`) {
		t.Errorf("logged: %s", said)
	}
}

// TestAGuardsLastWordIsAnAnswer: the sale is sold out by now, wherever its rule is.
func TestAGuardsLastWordIsAnAnswer(t *testing.T) {
	b := redistest.Mini(t)
	sold := seckill.New(guardtest.NewEngine(b), "sale", seckill.Options{})
	if _, err := sold.Open(t.Context(), "tv", seckill.Sale{Stock: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := sold.Check(t.Context(), core.Attempt{Actor: "bob", Resource: "tv"}); err != nil {
		t.Fatal(err)
	}
	buy := nethttpmw.HTTP(pipeline.Rule{Guard: sold, Who: keyfuncs.Const("ann"), What: keyfuncs.Const("tv")})
	for name, mount := range map[string]func(*world){
		"outside": func(w *world) { w.behind = buy }, "inside": func(w *world) { w.inside = buy },
	} {
		w := newWorld(t, b, delay.Options{}, nil)
		mount(w)
		location := w.defers("rows", "Idempotency-Key: "+name)
		w.gate.open.Store(true)
		w.work()
		to := w.wantState(location, deferred.StateDone)
		if to.Code != http.StatusConflict || !strings.Contains(to.Body.String(), "sold_out") || len(w.runs()) > 0 {
			t.Errorf("%s: %d %s, ran %q", name, to.Code, to.Body, w.runs())
		}
	}
}

// answering is a middleware that answers all requests itself.
func answering(status int) func(http.Handler) http.Handler {
	return func(http.Handler) http.Handler {
		return http.HandlerFunc(func(to http.ResponseWriter, _ *http.Request) { to.WriteHeader(status) })
	}
}

// newPost makes a request of a user, with headers "Name: value".
func newPost(user, body string, headers ...string) *http.Request {
	return newRequest(user, http.MethodPost, "/exports?q=1", body, headers...)
}

// defersIt sends a request, which has to be deferred, and returns its Location.
func (w *world) defersIt(r *http.Request) string {
	w.Helper()
	to := httptest.NewRecorder()
	w.app.ServeHTTP(to, r)
	if to.Code != http.StatusAccepted {
		w.Fatalf("%d %v %s: want 202", to.Code, to.Header(), to.Body)
	}
	return to.Header().Get("Location")
}
