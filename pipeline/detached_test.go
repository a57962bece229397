package pipeline_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
)

// contextual is an application's guard that tells of the context of its checks.
type contextual struct {
	fake
	tell func(ctx context.Context)
}

func (g *contextual) Check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	g.tell(ctx)
	return g.fake.Check(ctx, a)
}

// TestGuardsHaveTheRequestsContextWithoutItsCancellation: they hear neither of a client that has left, nor of
// a deadline, nor why; and they have the values of the request.
func TestGuardsHaveTheRequestsContextWithoutItsCancellation(t *testing.T) {
	type key struct{}
	parent, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "kept"))
	parent, stop := context.WithTimeout(parent, time.Hour)
	defer stop()
	cancel(errors.New("the client has left"))
	asked := false
	guard := &contextual{fake{name: "own"}, func(ctx context.Context) {
		asked = true
		derived, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		for _, ctx := range []context.Context{ctx, derived} {
			if ctx.Err() != nil || context.Cause(ctx) != nil || ctx.Value(key{}) != "kept" {
				t.Errorf("%v, cause %v, value %v", ctx.Err(), context.Cause(ctx), ctx.Value(key{}))
			}
		}
		if _, ok := ctx.Deadline(); ok || ctx.Done() != nil {
			t.Error("the context ends with the request")
		}
		if n := testing.AllocsPerRun(1000, func() { _ = ctx.Value(key{}) }); n > 0 {
			t.Errorf("a value costs %v allocations", n)
		}
	}}
	r := httptest.NewRequestWithContext(parent, http.MethodGet, "/", nil)
	nethttpmw.HTTP(ruleOf(guard))(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
	if !asked {
		t.Error("the guard was not asked")
	}
}
