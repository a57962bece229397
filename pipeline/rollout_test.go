package pipeline_test

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// refusedOf sends one request for each of the clients, and returns which are refused.
func refusedOf(app http.Handler, clients int) map[string]bool {
	refused := map[string]bool{}
	for i := range clients {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		who := fmt.Sprintf("client-%d", i)
		r.Header.Set("X-Client", who)
		w := httptest.NewRecorder()
		app.ServeHTTP(w, r)
		if w.Code == http.StatusTooManyRequests {
			refused[who] = true
		}
	}
	return refused
}

func rolledOut(name string, rollout *pipeline.Rollout) http.Handler {
	return nethttpmw.HTTP(pipeline.Rule{
		Guard: &refuser{fake: fake{name: name}, decision: core.Decision{Reason: core.ReasonLimited}},
		Who:   keyfuncs.Header("X-Client"), Rollout: rollout,
	})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
}

func TestRolloutGivesEachClientOneFate(t *testing.T) {
	const clients = 4000
	rollout := new(pipeline.Rollout)
	app := rolledOut("limit", rollout)
	if got := len(refusedOf(app, clients)); got != clients {
		t.Errorf("a zero Rollout refuses %d of %d", got, clients)
	}
	before := map[string]bool{}
	for _, percent := range []float64{0, 1, 10, 50, 99.5, 100} {
		if err := rollout.Set(100, percent); err != nil {
			t.Fatal(err)
		}
		refused := refusedOf(app, clients)
		// What n clients of cohorts that are drawn by chance give, and four standard deviations to each side.
		p := percent / 100
		want, spread := p*clients, 4*math.Sqrt(p*(1-p)*clients)
		if got := float64(len(refused)); math.Abs(got-want) > spread {
			t.Errorf("at %v %%, %v of %d are refused, want %v ± %.0f", percent, got, clients, want, spread)
		}
		for who := range before {
			if !refused[who] {
				t.Errorf("at %v %%, %s is not refused any more", percent, who)
			}
		}
		before = refused
	}
}

func TestRolloutFatesDifferFromGuardToGuard(t *testing.T) {
	const clients = 4000
	rollout := new(pipeline.Rollout)
	if err := rollout.Set(50, 50); err != nil {
		t.Fatal(err)
	}
	one, other := refusedOf(rolledOut("one", rollout), clients), refusedOf(rolledOut("other", rollout), clients)
	both := 0
	for who := range one {
		if other[who] {
			both++
		}
	}
	if both < clients/5 || both > clients*3/10 {
		t.Errorf("%d of %d clients have the same cohort twice, want about a quarter", both, clients)
	}
}

func TestRolloutAsksTheGuardForTheEnabledOnly(t *testing.T) {
	const clients = 1000
	rollout := new(pipeline.Rollout)
	if err := rollout.Set(30, 10); err != nil {
		t.Fatal(err)
	}
	refused := len(refusedOf(rolledOut("limit", rollout), clients))
	r := rollout.Report()
	if r.Refused != int64(refused) || r.Passed != 0 || r.Refused+r.WouldRefuse+r.Skipped != clients ||
		r.WouldRefuse < 130 || r.WouldRefuse > 270 || !r.On || r.Enabled != 30 || r.Enforced != 10 {
		t.Errorf("%d are refused, and %+v", refused, r)
	}
}

func TestRolloutOfRequestsWithoutAKey(t *testing.T) {
	rollout := new(pipeline.Rollout)
	app := rolledOut("limit", rollout)
	for _, tt := range []struct {
		enforced float64
		want     int
	}{{100, http.StatusBadRequest}, {99.99, http.StatusOK}, {0, http.StatusOK}} {
		if err := rollout.Set(100, tt.enforced); err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		app.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if w.Code != tt.want {
			t.Errorf("enforced for %v %%: %d, want %d", tt.enforced, w.Code, tt.want)
		}
	}
}

func TestRolloutSetRefusesWhatMakesNoSense(t *testing.T) {
	rollout := new(pipeline.Rollout)
	if err := rollout.Set(40, 20); err != nil {
		t.Fatal(err)
	}
	for _, wrong := range [][2]float64{{-1, -1}, {101, 0}, {10, 11}, {math.NaN(), 0}, {50, math.NaN()},
		{math.Inf(1), 0}} {
		if err := rollout.Set(wrong[0], wrong[1]); err == nil {
			t.Errorf("Set(%v, %v) is no error", wrong[0], wrong[1])
		}
	}
	if r := rollout.Report(); r.Enabled != 40 || r.Enforced != 20 {
		t.Errorf("%+v, want what was set before", r)
	}
}

// TestRolloutChangesWhileRequestsGoOn is for the race detector.
func TestRolloutChangesWhileRequestsGoOn(t *testing.T) {
	rollout := pipeline.Shadow()
	app := rolledOut("limit", rollout)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for n := range 50 {
				if i == 0 {
					if err := rollout.Set(100, float64(n)); err != nil {
						t.Error(err)
					}
					rollout.Switch(n%2 == 0)
				} else {
					refusedOf(app, 4)
				}
			}
		})
	}
	all.Wait()
	if r := rollout.Report(); r.Skipped+r.Refused+r.WouldRefuse != 3*50*4 {
		t.Errorf("%+v, want %d requests", r, 3*50*4)
	}
}

// TestAnOverlayLiesOverTheRollout: what is set below it is in force when it ends.
func TestAnOverlayLiesOverTheRollout(t *testing.T) {
	const clients = 100
	rollout := pipeline.Shadow()
	app := rolledOut("limit", rollout)
	want := func(refused int, on bool, enabled, enforced float64) {
		t.Helper()
		if got := len(refusedOf(app, clients)); got != refused {
			t.Errorf("%d of %d are refused, want %d", got, clients, refused)
		}
		if r := rollout.Report(); r.On != on || r.Enabled != enabled || r.Enforced != enforced {
			t.Errorf("the report says %+v", r)
		}
	}
	want(0, true, 100, 0)
	rollout.Switch(false)
	if err := rollout.Overlay(100, 100); err != nil {
		t.Fatal(err)
	}
	want(clients, true, 100, 100)
	if rollout.Overlay(10, 20) == nil {
		t.Error("more enforced than enabled is no error")
	}
	want(clients, true, 100, 100)
	if err := rollout.Set(0, 0); err != nil {
		t.Fatal(err)
	}
	rollout.Switch(true)
	want(clients, true, 100, 100)
	rollout.Uncover()
	want(0, true, 0, 0)
}
