package nethttpmw_test

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
)

// TestAnAllowedRequestCostsFewAllocations: one limit cost 16 of them and 1,296 bytes, besides those of the
// handler and of the key function. Left are the passage, its context without cancellation, the copy of the
// request that net/http makes, the claim, the text of the RateLimit fields, and their places in the header.
func TestAnAllowedRequestCostsFewAllocations(t *testing.T) {
	const most, mostBytes = 6, 920
	guard := limit.NewFixedWindow(core.NewMemory(), "site", limit.PerDay(10_000))
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	app := nethttpmw.HTTP(nethttpmw.Rule{Guard: guard,
		Who: func(r *keyfuncs.Request) (string, error) { return r.Host, nil }})(handler)
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	w := &blank{header: http.Header{}}
	serve := func() {
		clear(w.header)
		app.ServeHTTP(w, r)
	}
	if n := testing.AllocsPerRun(200, serve); n > most {
		t.Errorf("%v allocations, want %d at most", n, most)
	}
	if len(w.header["Ratelimit"]) != 1 || len(w.header["Ratelimit-Policy"]) != 1 {
		t.Errorf("header %v", w.header)
	}
	const runs = 1000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		serve()
	}
	runtime.ReadMemStats(&after)
	if n := (after.TotalAlloc - before.TotalAlloc) / runs; n > mostBytes {
		t.Errorf("%d bytes, want %d at most", n, mostBytes)
	}
}
