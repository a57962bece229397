package pipeline_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/core/quota"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// loginPage is a login behind a limit of failed ones, whose refusals are strikes.
type loginPage struct {
	guard   core.Guard
	bans    *bans.Guard
	app     http.Handler
	running chan struct{} // gets a value from each correct login
	leave   chan struct{} // each correct login waits for a value
	posted  atomic.Int64
}

// newLoginPage makes a login page. It has two routes, each with a middleware of its own, and a rule behind that
// of the limit.
func newLoginPage(gate *core.Engine, guard core.Guard) *loginPage {
	p := &loginPage{guard: guard, bans: bans.New(gate, "bans", bans.Options{Refusals: 1}),
		running: make(chan struct{}, 100), leave: make(chan struct{}, 100)}
	who := keyfuncs.Const("the office")
	failed := pipeline.Rule{Guard: guard, Who: who, Bans: p.bans, Which: keyfuncs.Header("X-Item"),
		Counted: []int{http.StatusUnauthorized}}
	if !guard.Traits().NeedsItem {
		failed.Which = nil
	}
	site := pipeline.Rule{Guard: limit.NewFixedWindow(gate, "site", limit.PerHour(1_000_000)), Who: who}
	login := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Password") != "right" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		p.running <- struct{}{}
		<-p.leave
	})
	mux := http.NewServeMux()
	mux.Handle("/login", nethttpmw.HTTP(failed, site)(login))
	mux.Handle("/old-login", nethttpmw.HTTP(failed, site)(login))
	p.app = mux
	return p
}

// post logs in. A quota takes each request for another item.
func (p *loginPage) post(path, password string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, nil)
	r.Header.Set("X-Item", fmt.Sprint(p.posted.Add(1)))
	r.Header.Set("X-Password", password)
	w := httptest.NewRecorder()
	p.app.ServeHTTP(w, r)
	return w
}

// strikes returns how many strikes count against the office, and whether it is banned.
func (p *loginPage) strikes(t *testing.T) (int64, bool) {
	t.Helper()
	s, err := p.bans.Status(t.Context(), core.Attempt{Actor: "the office"})
	if err != nil {
		t.Fatal(err)
	}
	return s.Strikes, s.Left > 0
}

// wantRunning waits until so many correct logins run.
func (p *loginPage) wantRunning(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		select {
		case <-p.running:
		case <-time.After(30 * time.Second):
			t.Fatalf("%d logins run, want %d", i, n)
		}
	}
}

// wantRefused wants a refusal by the guard after which units may be back in a moment, or only when those of
// failed logins are.
func (p *loginPage) wantRefused(t *testing.T, w *httptest.ResponseRecorder, soon bool) {
	t.Helper()
	retry, _ := strconv.Atoi(w.Header().Get("Retry-After"))
	if w.Code != http.StatusTooManyRequests || (retry == 1) != soon {
		t.Errorf("%d, Retry-After %d, %s; want 429, after a second: %t", w.Code, retry, w.Body, soon)
	}
}

// TestRequestsThatRunAreNoReasonForABan: people of one address who logged in at once, all of them with the
// right password, were banned, and told to come back in an hour.
//
// Promise (Bans): A refusal is no strike while another request of the client is under way in this process. Of
// many refused at once, the last is.
func TestRequestsThatRunAreNoReasonForABan(t *testing.T) {
	const most, callers, rounds = 5, 30, 20
	guards := map[string]func(gate *core.Engine) core.Guard{
		"sliding window": func(gate *core.Engine) core.Guard {
			return limit.NewSlidingWindow(gate, "logins", limit.PerHour(most))
		},
		"fixed window": func(gate *core.Engine) core.Guard {
			return limit.NewFixedWindow(gate, "logins", limit.PerDay(most))
		},
		"token bucket": func(gate *core.Engine) core.Guard {
			return limit.NewTokenBucket(gate, "logins", limit.PerDay(most))
		},
		"quota": func(gate *core.Engine) core.Guard {
			return quota.New(gate, "logins", quota.Options{Items: most, Period: period.Daily(time.UTC)})
		},
	}
	for name, newGuard := range guards {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				gate := guardtest.NewEngine(b)
				if name == "quota" { // no day ends meanwhile
					noon, begun := time.Date(2030, time.June, 1, 12, 0, 0, 0, time.UTC), time.Now()
					core.WithClock(func() time.Time { return noon.Add(time.Since(begun)) })(gate)
				}
				p := newLoginPage(gate, newGuard(gate))
				for range rounds {
					refused := 0
					answers := p.atOnce(callers, "right")
					p.wantRunning(t, most)
					for range callers - most {
						refused++
						p.wantRefused(t, <-answers, true)
					}
					for range most {
						p.leave <- struct{}{}
					}
					for range most {
						if w := <-answers; w.Code != http.StatusOK {
							t.Errorf("a login that ran: %d %s", w.Code, w.Body)
						}
					}
					if n, banned := p.strikes(t); n > 0 || banned {
						t.Fatalf("%d strikes, banned: %t, and nobody has failed", n, banned)
					}
				}
				if n := pipeline.RunsOf(p.guard); n > 0 {
					t.Errorf("%d actors are remembered after their requests have ended", n)
				}
			})
		})
	}
}

// atOnce posts logins at the same time, to both routes.
func (p *loginPage) atOnce(n int, password string) <-chan *httptest.ResponseRecorder {
	answers := make(chan *httptest.ResponseRecorder, n)
	for i := range n {
		go func() { answers <- p.post([]string{"/login", "/old-login"}[i%2], password) }()
	}
	return answers
}

// TestFailedLoginsLeadToABanWhateverRuns: refusals of one who fails too often are strikes. While another request
// of theirs is under way, there is no telling; of many that are refused at once the last is a strike.
func TestFailedLoginsLeadToABanWhateverRuns(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		gate := guardtest.NewEngine(b)
		p := newLoginPage(gate, limit.NewSlidingWindow(gate, "logins", limit.PerHour(5)))
		for i := range 4 {
			if w := p.post("/login", "wrong"); w.Code != http.StatusUnauthorized {
				t.Fatalf("login %d: %d %s", i+1, w.Code, w.Body)
			}
		}
		correct := p.atOnce(1, "right")
		p.wantRunning(t, 1)
		for range 3 {
			p.wantRefused(t, p.post("/login", "wrong"), true)
		}
		if n, banned := p.strikes(t); n > 0 || banned {
			t.Errorf("%d strikes, banned: %t, while the last unit may come back", n, banned)
		}
		p.leave <- struct{}{}
		if w := <-correct; w.Code != http.StatusOK {
			t.Errorf("the correct login: %d %s", w.Code, w.Body)
		}
		if w := p.post("/old-login", "wrong"); w.Code != http.StatusUnauthorized {
			t.Fatalf("the unit did not come back: %d %s", w.Code, w.Body)
		}
		const callers = 30
		answers := p.atOnce(callers, "wrong")
		for range callers {
			if w := <-answers; w.Code != http.StatusTooManyRequests {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		}
		if n, banned := p.strikes(t); n == 0 && !banned { // a ban forgets the strikes
			t.Error("30 refusals at once, and no strike")
		}
		p.post("/login", "wrong") // nothing else is under way
		if _, banned := p.strikes(t); !banned {
			t.Error("one refusal more than allowed, and no ban")
		}
		if n := pipeline.RunsOf(p.guard); n > 0 {
			t.Errorf("%d actors are remembered after their requests have ended", n)
		}
	})
}

// TestRunsEndHoweverRequestsEnd: a run that did not end would excuse its actor's refusals for ever.
func TestRunsEndHoweverRequestsEnd(t *testing.T) {
	gate := core.NewMemory()
	guard := limit.NewSlidingWindow(gate, "logins", limit.PerHour(1000))
	full := limit.NewSlidingWindow(gate, "full", limit.PerHour(1))
	never := func(int) bool { return false }
	rule := pipeline.Rule{Guard: guard, Who: keyfuncs.Const("ann"), Failed: never}
	behind := pipeline.Rule{Guard: full, Who: keyfuncs.Const("ann"), Failed: never}
	for name, handler := range map[string]http.HandlerFunc{
		"answers": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) },
		"panics":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"takes": func(_ http.ResponseWriter, r *http.Request) {
			if _, ok := pipeline.Take(r.Context(), "logins"); !ok {
				t.Error("not taken")
			}
		},
		"spends": func(_ http.ResponseWriter, r *http.Request) {
			if err := pipeline.Spend(r.Context(), "logins", 7); err != nil {
				t.Error(err)
			}
		},
	} {
		for _, rules := range [][]pipeline.Rule{{rule}, {rule, behind}, {behind, rule}} {
			t.Run(fmt.Sprint(name, len(rules)), func(t *testing.T) {
				for range 3 {
					func() {
						defer func() { _ = recover() }()
						nethttpmw.HTTP(rules...)(handler).ServeHTTP(httptest.NewRecorder(),
							httptest.NewRequest(http.MethodPost, "/", nil))
					}()
					for _, g := range []core.Guard{guard, full} {
						if n := pipeline.RunsOf(g); n > 0 {
							t.Errorf("%s: %d actors are remembered", g.Name(), n)
						}
					}
				}
			})
		}
	}
}

// TestGuardsThatAreNoKeysAreCounted: a guard of the application may be a value that is no key of a map.
func TestGuardsThatAreNoKeysAreCounted(t *testing.T) {
	rule := ruleOf(listed{&fake{name: "own"}, []string{"no key"}})
	rule.Failed = func(int) bool { return false }
	w := httptest.NewRecorder()
	nethttpmw.HTTP(rule)(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
	if w.Code != http.StatusNotFound {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// listed is a guard that == cannot compare.
type listed struct {
	core.Guard
	list []string
}
