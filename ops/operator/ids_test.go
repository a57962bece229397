package operator_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gatehouse-go/gatehouse/core/idempotency"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/ops/operator"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// TestOperatorsNameOperationsAsClientsDo: a rule joins the ID that a client sends with the actor, and the
// operator knows only what the client has sent.
//
// Promise (Every guard): Rules join IDs with the actor unless `BareID` is set, so no client uses another's.
func TestOperatorsNameOperationsAsClientsDo(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		rule := pipeline.Rule{
			Guard: idempotency.New(guardtest.NewEngine(b), "once", idempotency.Options{}),
			Who:   keyfuncs.Header("X-User"), ID: keyfuncs.IdempotencyKey(),
		}
		ran := 0
		app := nethttpmw.HTTP(rule)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran++ }))
		d := &desk{T: t, Handler: operator.New(operator.Options{
			Rules:     []pipeline.Rule{rule},
			Authorize: func(*keyfuncs.Request, operator.Action) (string, error) { return "eve", nil },
		})}
		order := func() {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Header.Set("X-User", "ann")
			r.Header.Set("Idempotency-Key", `"o1"`)
			app.ServeHTTP(httptest.NewRecorder(), r)
		}
		order()
		order()
		d.want(post("/once/reset", "actor=ann", "id=o1"), 200, `{"done":true}`)
		order()
		if ran != 2 {
			t.Errorf("the handler ran %d times, want once before the reset and once after it", ran)
		}
	})
}
