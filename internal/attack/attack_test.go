package attack

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// inside sends requests to a handler without a network, so that attacks run by the clock of a bubble.
type inside struct{ handler http.Handler }

func (i inside) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	<-time.After(time.Microsecond) // how long a request takes, by the clock of the bubble
	r.RemoteAddr = "203.0.113.7:50000"
	w := httptest.NewRecorder()
	i.handler.ServeHTTP(w, r)
	return w.Result(), nil
}

func newInside(t *testing.T, handler http.Handler, o Options) *Attacker {
	t.Helper()
	o.URL = "http://127.0.0.1/"
	a, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	a.client.Transport = inside{handler}
	return a
}

// answering answers 200 to what is admitted and 429 to what is not.
func answering(admit func(r *http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !admit(r) {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
}

// naive is a fixed window as it is often written.
func naive(n int, window time.Duration, key func(*http.Request) string) http.Handler {
	type counter struct {
		begun time.Time
		count int
	}
	var mu sync.Mutex
	counters := map[string]*counter{}
	return answering(func(r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		c := counters[key(r)]
		if c == nil || time.Since(c.begun) >= window {
			c = &counter{begun: time.Now()}
			counters[key(r)] = c
		}
		c.count++
		return c.count <= n
	})
}

func peer(r *http.Request) string { return r.RemoteAddr }

func TestAFixedWindowAdmitsNearlyTwiceItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newInside(t, naive(100, time.Minute, peer), Options{})
		e, err := a.Edge(t.Context(), 100, time.Minute)
		if err != nil || e.Worst != 199 || e.Holds() {
			t.Errorf("Edge = %+v, %v: want 199 of 100 in one window", e, err)
		}
	})
}

func TestASlidingWindowHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		perIP := pipeline.Rule{Who: keyfuncs.IP(),
			Guard: limit.NewSlidingWindow(core.NewMemory(), "site", limit.PerMinute(100))}
		a := newInside(t, nethttpmw.HTTP(perIP)(http.NotFoundHandler()),
			Options{Admits: func(status int) bool { return status == http.StatusNotFound }})
		e, err := a.Edge(t.Context(), 0, 0) // RateLimit-Policy tells
		if err != nil || e.Worst != 100 || e.Limit != 100 || e.Window != time.Minute || !e.Holds() {
			t.Errorf("Edge = %+v, %v: want 100 of 100 in one window", e, err)
		}
		seen := a.Seen()
		if seen.Admitted < 101 || seen.Statuses[http.StatusTooManyRequests] == 0 || seen.Requests > a.Requests ||
			!strings.HasPrefix(strings.Join(seen.WhenRefused, "\n"), "RateLimit: \"site\";r=0;t=") ||
			!strings.Contains(strings.Join(seen.WhenRefused, "\n"), "Retry-After: ") {
			t.Errorf("seen: %+v", seen)
		}
	})
}

func TestNoLimitAtAllIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newInside(t, answering(func(*http.Request) bool { return true }), Options{Requests: 300})
		e, err := a.Edge(t.Context(), 10, time.Minute)
		if err != nil || e.Worst != 300 || e.Holds() || a.Seen().Requests != 300 {
			t.Errorf("Edge = %+v, %v after %d requests: want 300 of 10", e, err, a.Seen().Requests)
		}
	})
}

func TestARaceCountsWhatWasSold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, stock := range []int64{10, 9} {
			var left atomic.Int64
			left.Store(10)
			shop := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch n := left.Add(-1); {
				case r.URL.Query().Get("buyer") == "" || r.URL.Query().Get("buyer") == Number:
					w.WriteHeader(http.StatusBadRequest)
				case n == -1:
					w.Header().Set("Idempotent-Replayed", "true")
				case n < 0:
					w.WriteHeader(http.StatusConflict)
				}
			})
			a := newInside(t, shop, Options{Requests: 200})
			a.URL += "?buyer={n}"
			r, err := a.Race(t.Context(), stock)
			if err != nil || r.Sold != 10 || r.Replayed != 1 || r.Holds() != (stock == 10) || !a.Varies() {
				t.Errorf("Race = %+v, %v: want 10 sold, 1 replay", r, err)
			}
		}
	})
}

func TestForgedFieldsThatChangeTheKeyAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trusting := func(r *http.Request) string {
			return r.Header.Get("X-Forwarded-For") + r.Header.Get("Forwarded")
		}
		for _, tt := range []struct {
			name   string
			key    func(r *http.Request) string
			change []string
		}{
			{"trusting", trusting, []string{"X-Forwarded-For", "Forwarded"}},
			{"the peer", peer, nil},
		} {
			a := newInside(t, naive(5, time.Hour, tt.key), Options{})
			found, err := a.Spoof(t.Context())
			if err != nil || len(found) != len(Forged) {
				t.Errorf("%s: Spoof = %v, %v", tt.name, found, err)
			}
			var changed []string
			for _, s := range found {
				if s.Effect == ChangesKey {
					changed = append(changed, s.Field)
				}
			}
			if strings.Join(changed, ",") != strings.Join(tt.change, ",") {
				t.Errorf("%s: %v change the key, want %v", tt.name, changed, tt.change)
			}
		}
	})
}

func TestSpoofNeedsALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newInside(t, answering(func(*http.Request) bool { return true }), Options{Requests: 50})
		if found, err := a.Spoof(t.Context()); found != nil || !errors.Is(err, ErrNoRequestsLeft) {
			t.Errorf("Spoof = %v, %v", found, err)
		}
	})
}

func TestAnAttackThatDoesNotFitItsBoundsSendsNothing(t *testing.T) {
	for _, tt := range []struct {
		limit  int64
		window time.Duration
		want   string
	}{
		{100, 24 * time.Hour, "more than the most of 1h0m0s"},
		{100, 10 * time.Minute, "-for 25m0s"},
		{1000, time.Minute, "-n 2041"},
		{100_000, time.Minute, "more than the most of 100000"},
		{10, time.Millisecond, "too short"},
	} {
		a := newInside(t, answering(func(*http.Request) bool { return true }), Options{})
		_, err := a.Edge(t.Context(), tt.limit, tt.window)
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), tt.want) || a.Seen().Requests != 0 {
			t.Errorf("%d in %v: %v after %d requests, want %q", tt.limit, tt.window, err, a.Seen().Requests, tt.want)
		}
	}
}

func TestAnAttackEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newInside(t, naive(10, time.Minute, peer), Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second*70)
		defer cancel()
		e, err := a.Edge(ctx, 10, time.Minute)
		if !errors.Is(err, context.DeadlineExceeded) || e.Worst != 19 {
			t.Errorf("Edge = %+v, %v: want what was found until then", e, err)
		}
	})
}

func TestAFewFailuresDoNotEndAnAttack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			every int64
			fails bool
		}{{20, false}, {2, true}} {
			var n atomic.Int64
			a := newInside(t, nil, Options{Requests: 200})
			a.client.Transport = tripper(func(r *http.Request) (*http.Response, error) {
				if n.Add(1)%tt.every == 0 {
					return nil, errors.New("reset")
				}
				return inside{http.NotFoundHandler()}.RoundTrip(r)
			})
			if _, err := a.Race(t.Context(), 0); (err != nil) != tt.fails {
				t.Errorf("every %dth request fails: Race = %v after %+v", tt.every, err, a.Seen())
			}
		}
	})
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
