package ginmw_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/ginmw"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// TestAnAllowedRequestCostsFewAllocations: an adapter only translates, so a limit costs a request no more
// than it costs one of net/http.
func TestAnAllowedRequestCostsFewAllocations(t *testing.T) {
	const most = 4
	gin.SetMode(gin.ReleaseMode)
	guard := limit.NewFixedWindow(core.NewMemory(), "site", limit.PerDay(10_000))
	rule := pipeline.Rule{Guard: guard, Who: func(r *keyfuncs.Request) (string, error) { return r.Host, nil }}
	middleware := ginmw.Gin(rule)
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	c, _ := gin.CreateTestContext(httptest.NewRecorder()) // a server takes contexts from a pool
	header := c.Writer.Header()
	n := testing.AllocsPerRun(500, func() {
		clear(header)
		c.Request = r
		c.Abort() // so that there is no handler to go on to
		middleware(c)
	})
	if n > most || len(header) != 2 {
		t.Errorf("%v allocations, want %d at most; header %v", n, most, header)
	}
}
