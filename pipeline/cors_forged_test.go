package pipeline_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// TestForgedPreflightsCountWhereTheRuleSaysSo: a forged preflight gets data from a handler that serves any
// method, uncounted. With CountPreflights it counts, and a browser's preflight still gets its answer from a
// CORS middleware around the rules when the limit is used up.
func TestForgedPreflightsCountWhereTheRuleSaysSo(t *testing.T) {
	for _, c := range []struct {
		counts    bool
		forged    int // of five forged preflights, so many get the data
		preflight int // status of the browser's
	}{
		{false, 5, http.StatusNoContent},
		{true, 1, http.StatusNoContent},
	} {
		rule := pipeline.Rule{Guard: limit.NewSlidingWindow(core.NewMemory(), "site", limit.PerHour(1)),
			Who: keyfuncs.Const("ann"), CountPreflights: c.counts}
		data := nethttpmw.HTTP(rule)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("data"))
		}))
		shop := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // the CORS middleware around it
			w.Header().Set("Access-Control-Allow-Origin", "https://shop.example")
			if r.Method == http.MethodOptions {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			data.ServeHTTP(w, r)
		})
		send := func(app http.Handler) *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodOptions, "/", nil)
			r.Header.Set("Origin", "https://shop.example")
			r.Header.Set("Access-Control-Request-Method", "POST")
			w := httptest.NewRecorder()
			app.ServeHTTP(w, r)
			return w
		}
		forged := 0
		for range 5 {
			if send(data).Body.String() == "data" {
				forged++
			}
		}
		if forged != c.forged {
			t.Errorf("counting %t: %d forged preflights got the data, want %d", c.counts, forged, c.forged)
		}
		if w := send(shop); w.Code != c.preflight {
			t.Errorf("counting %t: the browser's preflight got %d", c.counts, w.Code)
		}
	}
}

// TestABannedClientsForgedPreflightRunsNoHandler: a preflight passed limits before their bans were asked.
//
// Promise: A banned client's forged preflight runs no handler behind the rule.
func TestABannedClientsForgedPreflightRunsNoHandler(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		e := guardtest.NewEngine(b)
		banned := bans.New(e, "bans", bans.Options{})
		if err := banned.Ban(t.Context(), core.Attempt{Actor: "192.0.2.1"}, time.Hour); err != nil {
			t.Fatal(err)
		}
		site := pipeline.Rule{Guard: limit.NewSlidingWindow(e, "site", limit.PerHour(9)),
			Who: keyfuncs.Const("all")}
		own := pipeline.Rule{Guard: limit.NewSlidingWindow(e, "own", limit.PerHour(9)), Who: keyfuncs.IP(),
			Bans: banned}
		byUser := own
		byUser.Who = keyfuncs.User("uid") // which no preflight has
		for name, c := range map[string]struct {
			rules        []pipeline.Rule
			banned, free int
		}{
			"alone":       {[]pipeline.Rule{own}, 429, 200},
			"behind":      {[]pipeline.Rule{site, own}, 429, 200},
			"in front":    {[]pipeline.Rule{own, site}, 429, 200},
			"by the user": {[]pipeline.Rule{byUser}, 200, 200},
		} {
			ran := 0
			app := nethttpmw.HTTP(c.rules...)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran++ }))
			for peer, want := range map[string]int{"192.0.2.1:1": c.banned, "192.0.2.2:1": c.free} {
				r := httptest.NewRequest(http.MethodOptions, "/", nil)
				r.RemoteAddr = peer
				r.Header.Set("Origin", "https://shop.example")
				r.Header.Set("Access-Control-Request-Method", "POST")
				w := httptest.NewRecorder()
				ran = 0
				if app.ServeHTTP(w, r); w.Code != want || (ran == 1) != (want == 200) {
					t.Errorf("%s, %s: %d, the handler ran %d times, want %d", name, peer, w.Code, ran, want)
				}
			}
		}
		for actor, g := range map[string]*limit.SlidingWindow{"all": site.Guard.(*limit.SlidingWindow),
			"192.0.2.2": own.Guard.(*limit.SlidingWindow)} {
			if d, err := g.Peek(t.Context(), core.Attempt{Actor: actor}); err != nil || d.Remaining != 9 {
				t.Errorf("a preflight was counted: %d left, %v", d.Remaining, err)
			}
		}
	})
}
