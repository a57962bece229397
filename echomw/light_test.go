package echomw_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/echomw"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// TestAnAllowedRequestCostsFewAllocations: an adapter only translates, so a limit costs a request hardly more
// than it costs one of net/http. What echo adds is its context, as what the keys are made of.
func TestAnAllowedRequestCostsFewAllocations(t *testing.T) {
	const most = 5
	guard := limit.NewFixedWindow(core.NewMemory(), "site", limit.PerDay(10_000))
	rule := pipeline.Rule{Guard: guard, Who: func(r *keyfuncs.Request) (string, error) { return r.Host, nil }}
	handler := echomw.Echo(rule)(func(echo.Context) error { return nil })
	r, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
	c := echo.New().NewContext(r, w) // a server takes contexts from a pool
	n := testing.AllocsPerRun(500, func() {
		clear(w.Header())
		c.SetRequest(r)
		if err := handler(c); err != nil {
			t.Fatal(err)
		}
	})
	if n > most || len(w.Header()) != 2 {
		t.Errorf("%v allocations, want %d at most; header %v", n, most, w.Header())
	}
}
