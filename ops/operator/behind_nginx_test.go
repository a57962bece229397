package operator_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/ops/operator"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// TestChangesBehindAProxyThatDropsThePort: on plain http with a port behind nginx's "Host $host" each change was
// refused as one of another site, and nothing said why.
func TestChangesBehindAProxyThatDropsThePort(t *testing.T) {
	gate := core.NewMemory(core.WithObserver(guardtest.Ignore{}))
	rule := pipeline.Rule{Guard: limit.NewSlidingWindow(gate, "site", limit.PerHour(9)), Who: keyfuncs.IP()}
	options := operator.Options{Rules: []pipeline.Rule{rule},
		Authorize: func(*keyfuncs.Request, operator.Action) (string, error) { return "sue", nil }}
	change := func(host, origin string, origins ...string) *httptest.ResponseRecorder {
		options.Origins = origins
		r := httptest.NewRequest(http.MethodPost, "/ops/site/reset", strings.NewReader("actor=ann"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Host = host
		r.Header.Set("Origin", origin)
		w := httptest.NewRecorder()
		operator.New(options).ServeHTTP(w, r)
		return w
	}
	const page = "http://ops.example:8080"
	for name, c := range map[string]struct {
		host, origin string
		origins      []string
		status       int
		says         string
	}{
		"the Host as it was":     {"ops.example:8080", page, nil, 200, ""},
		"the port is dropped":    {"ops.example", page, nil, 403, "at port 8080"},
		"and the page is named":  {"ops.example", page, []string{page}, 200, ""},
		"another port":           {"ops.example:8080", "http://ops.example:9999", nil, 403, "another site"},
		"another site":           {"ops.example", "http://evil.example:8080", []string{page}, 403, "another site"},
		"another port, and none": {"ops.example", "http://ops.example:9999", []string{page}, 403, "at port 9999"},
		"an Origin that is none": {"ops.example", "null", nil, 403, "another site"},
	} {
		w := change(c.host, c.origin, c.origins...)
		if w.Code/100 != c.status/100 || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	guardtest.WantPanic(t, "Options.Origins", func() { change("ops.example", page, "ops.example:8080/path") })
}
