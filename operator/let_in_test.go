package operator_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/gatehousetest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/operator"
)

// TestAClientIsLetInAgainInOneStep: unban said done, and the limit went on to refuse them for an hour.
func TestAClientIsLetInAgainInOneStep(t *testing.T) {
	for _, at := range []string{"site", "bans"} {
		gate := gatehousetest.New(t)
		rule := nethttpmw.Rule{
			Guard: limit.NewSlidingWindow(gate.Engine, "site", limit.PerHour(2)), Who: keyfuncs.IP(),
			Bans: bans.New(gate.Engine, "bans", bans.Options{Refusals: 1, First: time.Minute}),
		}
		app := nethttpmw.HTTP(rule)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		changes := 0
		pages := operator.New(operator.Options{
			Rules:     []nethttpmw.Rule{rule},
			Authorize: func(*keyfuncs.Request, operator.Action) (string, error) { return "eve", nil },
			Audit:     func(context.Context, operator.Event) error { changes++; return nil },
		})
		from := func() *http.Request {
			r := request(http.MethodGet, "/")
			r.RemoteAddr = "203.0.113.7:1"
			return r
		}
		gate.Allows(app, 2, from)
		gate.Refuses(app, http.StatusTooManyRequests, time.Hour, from)
		for range 2 { // a ban
			app.ServeHTTP(httptest.NewRecorder(), from())
		}
		d := &desk{T: t, Handler: pages}
		w := d.send(post("/"+at+"/let-in-again", "actor=203.0.113.7"))
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `{"name":"bans","value":"unban"}`) ||
			!strings.Contains(w.Body.String(), `{"name":"site","value":"reset"}`) || changes != 2 {
			t.Errorf("%s: %d %s, %d records", at, w.Code, w.Body, changes)
		}
		gate.Allows(app, 2, from)
	}
}
