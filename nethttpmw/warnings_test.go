package nethttpmw_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/warn"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
)

// TestKeyFunctionsWarnWhereTheEngineLogs: their warnings went to slog's default, whatever logger the engine
// had.
func TestKeyFunctionsWarnWhereTheEngineLogs(t *testing.T) {
	elsewhere := logHere(t)
	logTo := func(log *bytes.Buffer) *core.Engine {
		return core.NewMemory(core.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	}
	var log, other bytes.Buffer
	rule := func(gate *core.Engine, name string, what keyfuncs.Func) nethttpmw.Rule {
		return nethttpmw.Rule{Guard: limit.NewSlidingWindow(gate, name, limit.PerHour(9)), Who: keyfuncs.IP(),
			What: what}
	}
	gate := logTo(&log)
	param := rule(logTo(&other), "param", keyfuncs.Param("thin"))
	mux := http.NewServeMux()
	mux.Handle("/things/{thing}", nethttpmw.HTTP(rule(gate, "site", nil), param)(http.NotFoundHandler()))
	route := nethttpmw.HTTP(rule(gate, "route", keyfuncs.Route()))(mux) // too early
	named := rule(gate, "named", nil)
	named.Headers.PartitionKey = keyfuncs.Param("id")
	tenants := http.NewServeMux()
	tenants.Handle("/tenants/{tenant}", nethttpmw.HTTP(named)(http.NotFoundHandler()))
	apps := map[string]http.Handler{"/things/t1": mux, "/things/t2": route, "/tenants/1": tenants}
	for path, app := range apps {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.RemoteAddr = "10.0.0.1:4000"
		r.Header.Set("X-Forwarded-For", "203.0.113.7")
		app.ServeHTTP(httptest.NewRecorder(), r)
	}
	for _, want := range []string{warn.Unread.Code(), warn.Unrouted.Code(), warn.Unknown.Code(), "param=id"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %s in %q", want, log.String())
		}
	}
	if !strings.Contains(other.String(), "param=thin") || elsewhere.Len() > 0 {
		t.Errorf("the other engine: %q, elsewhere: %q", other.String(), elsewhere)
	}
}
