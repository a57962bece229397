package pipeline_test

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
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// TestKeyFunctionsWarnWhereTheEngineLogs: their warnings went to slog's default, whatever logger the engine
// had.
func TestKeyFunctionsWarnWhereTheEngineLogs(t *testing.T) {
	elsewhere := logHere(t)
	logTo := func(log *bytes.Buffer) *core.Engine {
		return core.NewMemory(core.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	}
	var log, other bytes.Buffer
	rule := func(gate *core.Engine, name string, what keyfuncs.Func) pipeline.Rule {
		return pipeline.Rule{Guard: limit.NewSlidingWindow(gate, name, limit.PerHour(9)), Who: keyfuncs.IP(),
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

// TestARuleWithoutALoginWarns: User("uid") without a login in front refused everybody, with one line at INFO.
// Where one request has had a user, strangers are what they seem.
func TestARuleWithoutALoginWarns(t *testing.T) {
	for name, test := range map[string]struct {
		who   keyfuncs.Func
		noKey pipeline.NoKey
		first string // the user of the first request
		n     int
		warns bool
	}{
		"no login":           {who: keyfuncs.User("uid"), n: 16, warns: true},
		"hashed":             {who: keyfuncs.Hash(keyfuncs.User("uid")), n: 16, warns: true},
		"fewer":              {who: keyfuncs.User("uid"), n: 15},
		"a login":            {who: keyfuncs.User("uid"), first: "ann", n: 40},
		"another key":        {who: keyfuncs.Header("X-Api-Key"), n: 40},
		"passed":             {who: keyfuncs.User("uid"), noKey: pipeline.NoKeySkip, n: 40},
		"addresses as well":  {who: keyfuncs.FirstOf(keyfuncs.User("uid"), keyfuncs.IP()), n: 40},
		"a param is missing": {who: keyfuncs.Param("uid"), n: 40},
	} {
		t.Run(name, func(t *testing.T) {
			warn.Loginless.Forget()
			t.Cleanup(warn.Loginless.Forget)
			var log bytes.Buffer
			gate := core.NewMemory(core.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			app := nethttpmw.HTTP(pipeline.Rule{Guard: limit.NewSlidingWindow(gate, "api", limit.PerHour(99)),
				Who: test.who, NoKey: test.noKey})(http.NotFoundHandler())
			for i := range test.n {
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				if i == 0 && test.first != "" {
					r = r.WithContext(keyfuncs.WithValue(r.Context(), "uid", test.first))
				}
				app.ServeHTTP(httptest.NewRecorder(), r)
			}
			if told := strings.Contains(log.String(), "code=GH013"); told != test.warns {
				t.Errorf("warned: %v, the log: %s", told, log.String())
			}
		})
	}
}
