package recipes

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/budget"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// huge is the recipe in three processes, and when its requests were admitted.
type huge struct {
	t     *testing.T
	gates []*core.Engine
	apps  []http.Handler
	last  *budget.Guard // of another process, which only looks

	mu    sync.Mutex
	spans [][2]int64 // from before a request to its handler, in microseconds
}

type begunKey struct{}

func newHuge(t *testing.T, b redistest.Backend, perOrg limit.Limit, team, user int64) *huge {
	h := &huge{t: t}
	perTeam := budget.Limit{Max: team, Window: time.Hour, Resolution: 60}
	perUser := budget.Limit{Max: user, Window: time.Hour}
	app := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		begun, _ := r.Context().Value(begunKey{}).(time.Time)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.spans = append(h.spans, [2]int64{begun.UnixMicro(), time.Now().UnixMicro()})
	})
	for range 3 {
		gate := core.New(b.NewClient(t), core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute))
		h.gates = append(h.gates, gate)
		h.apps = append(h.apps, Huge(gate, perOrg, perTeam, perUser, app))
	}
	h.last = budget.New(guardtest.NewEngine(b), "teams", budget.Options{Levels: []string{"team", "user"},
		Find: func(path []string) ([]budget.Limit, error) {
			return []budget.Limit{[]budget.Limit{perTeam, perUser}[len(path)-1]}, nil
		}})
	return h
}

// burst sends a request of each user at one moment, by one of the processes. It returns how many of each
// user were admitted.
func (h *huge) burst(users []string, teamOf func(user string) string) map[string]int {
	h.t.Helper()
	var all sync.WaitGroup
	var mu sync.Mutex
	admitted, ready := map[string]int{}, make(chan struct{})
	var strange atomic.Int64
	for i, user := range users {
		all.Go(func() {
			<-ready
			begun := time.Now()
			ctx := context.WithValue(h.t.Context(), begunKey{}, begun)
			for name, text := range map[string]string{"org": "acme", "team": teamOf(user), "uid": user} {
				ctx = keyfuncs.WithValue(ctx, name, text)
			}
			w := httptest.NewRecorder()
			h.apps[i%len(h.apps)].ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			switch w.Code {
			case http.StatusOK:
				mu.Lock()
				admitted[user]++
				mu.Unlock()
			case http.StatusTooManyRequests:
			default:
				strange.Store(int64(w.Code))
			}
		})
	}
	close(ready)
	all.Wait()
	if status := strange.Load(); status != 0 {
		h.t.Fatalf("a request got %d", status)
	}
	return admitted
}

// used is what counts at a user.
func (h *huge) used(team, user string) int {
	h.t.Helper()
	figures, err := h.last.Usage(h.t.Context(),
		core.Attempt{Actor: budget.Path(keyfuncs.JoinTexts("acme", team), user)})
	if err != nil || len(figures) != 2 {
		h.t.Fatal(figures, err)
	}
	return int(figures[1].Used)
}

// most is how many requests were certainly admitted within one window.
func (h *huge) most(window time.Duration) (most int) {
	slices.SortFunc(h.spans, func(a, b [2]int64) int { return int(a[1] - b[1]) })
	for last := range h.spans {
		n, from := 0, h.spans[last][1]-window.Microseconds()
		for i := last; i >= 0 && h.spans[i][1] > from; i-- {
			if h.spans[i][0] > from {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// TestAFloodInAHugeOrganisationRefusesNobodyElse: a user sends 500 requests at the moment at which nine others
// send 42, of which all fit.
func TestAFloodInAHugeOrganisationRefusesNobodyElse(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		h := newHuge(t, b, limit.PerHour(2000), 60, 10)
		users := slices.Repeat([]string{"ann"}, 500)
		for i := range 42 {
			users = slices.Insert(users, i*13, fmt.Sprint("user", i%9))
		}
		got := h.burst(users, func(string) string { return "dev" })
		others := 0
		for user, n := range got {
			if user != "ann" {
				others += n
			}
		}
		if got["ann"] != 10 || others != 42 {
			t.Errorf("admitted %v, want 10 of ann and all 42 of the others", got)
		}
		if n := h.used("dev", "ann"); n != 10 {
			t.Errorf("ann has used %d", n)
		}
	})
}

// TestAHugeOrganisationKeepsItsMax: whatever its users ask for, in any window; and what the organisation is
// refused costs its users nothing.
//
// Promise (Budget): A leased limit of an organisation behind budgets of its teams never exceeds its Max.
func TestAHugeOrganisationKeepsItsMax(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		const most, window = 100, time.Second
		windows := 3
		if !redistest.All() {
			windows = 1
		}
		h := newHuge(t, b, limit.Per(most, window), 1_000_000, 10_000)
		var users []string
		for i := range 150 {
			users = append(users, fmt.Sprint("user", i%60))
		}
		team := func(user string) string { return "team" + user[len(user)-1:] }
		asked, total := 0, map[string]int{}
		end := time.Now().Add(time.Duration(windows) * window)
		for time.Now().Before(end) || h.most(window) < most/2 { // else it is busy
			asked += len(users)
			for user, n := range h.burst(users, team) {
				total[user] += n
			}
		}
		for _, gate := range h.gates {
			if err := gate.Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := h.most(window); n > most || n < most/2 || asked == len(h.spans) {
			t.Errorf("%d within one window, of %d asked, %d admitted; want %d at most", n, asked, len(h.spans), most)
		}
		for user, n := range total {
			if got := h.used(team(user), user); got != n {
				t.Errorf("%s has used %d, and was admitted %d times", user, got, n)
			}
		}
	})
}
