package nethttpmw_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
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
		rule := nethttpmw.Rule{Guard: limit.NewSlidingWindow(core.NewMemory(), "site", limit.PerHour(1)),
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
