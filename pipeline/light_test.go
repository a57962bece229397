package pipeline_test

import (
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// TestAnAllowedRequestCostsFewAllocations: one limit cost 16 of them and 1,296 bytes, besides those of the
// handler and of the key function. Left are the passage, the copy of the request that net/http makes, the
// claim, and the text of the RateLimit fields.
func TestAnAllowedRequestCostsFewAllocations(t *testing.T) {
	costs(t, limit.PerDay(10_000), 4, 900)
}

// TestARefusedRequestCostsFewAllocations: each refusal was encoded by reflection, and each of its fields had
// an allocation of its own: 18 of them and 1,424 bytes in all.
func TestARefusedRequestCostsFewAllocations(t *testing.T) {
	costs(t, limit.PerDay(1), 7, 1280) // 1,256, and more under the race detector
}

// costs fails the test if a request behind the limit costs more than that, after the first one.
func costs(t *testing.T, of limit.Limit, most float64, mostBytes uint64) {
	t.Helper()
	guard := limit.NewFixedWindow(core.NewMemory(), "site", of)
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	app := nethttpmw.HTTP(pipeline.Rule{Guard: guard,
		Who: func(r *keyfuncs.Request) (string, error) { return r.Host, nil }})(handler)
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	w := &blank{header: http.Header{}}
	serve := func() {
		clear(w.header)
		app.ServeHTTP(w, r)
	}
	serve()
	if n := testing.AllocsPerRun(200, serve); n > most {
		t.Errorf("%v allocations, want %v at most", n, most)
	}
	if len(w.header["Ratelimit"]) != 1 || len(w.header["Ratelimit-Policy"]) != 1 {
		t.Errorf("header %v", w.header)
	}
	least := uint64(math.MaxUint64) // of some rounds, since what other tests left running allocates as well
	for range 5 {
		const runs = 200
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range runs {
			serve()
		}
		runtime.ReadMemStats(&after)
		least = min(least, (after.TotalAlloc-before.TotalAlloc)/runs)
	}
	if least > mostBytes {
		t.Errorf("%d bytes, want %d at most", least, mostBytes)
	}
}

// TestFieldsThatShareAnAllocationDoNotShareRoom: who appends to the values of one field changes no other.
func TestFieldsThatShareAnAllocationDoNotShareRoom(t *testing.T) {
	guard := limit.NewFixedWindow(core.NewMemory(), "site", limit.PerDay(1))
	app := nethttpmw.HTTP(pipeline.Rule{Guard: guard,
		Who: func(r *keyfuncs.Request) (string, error) { return r.Host, nil }})(http.NotFoundHandler())
	for _, want := range []int{http.StatusNotFound, http.StatusTooManyRequests} {
		w := httptest.NewRecorder()
		app.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		before := w.Header().Clone()
		for name := range before {
			w.Header()[name] = append(w.Header()[name], "more")
		}
		for name, values := range before {
			if got := w.Header()[name]; len(got) != len(values)+1 || got[0] != values[0] || w.Code != want {
				t.Errorf("%d: %s was %q, and is %q", w.Code, name, values, got)
			}
		}
	}
}
