package conformance_test

import (
	"net/http"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/conformance"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestPipelineIsEnoughForAnAdapter: what the documentation of pipeline.Pipeline shows is all that an adapter
// to another framework has to do.
//
// Promise (Requests and answers): Several rules are all or nothing.
func TestPipelineIsEnoughForAnAdapter(t *testing.T) {
	conformance.Run(t, conformance.Framework{
		Build: build,
		Mount: func(rules ...pipeline.Rule) { guard(rules...) },
	})
}

// guard is an adapter to net/http, as short as it can be.
func guard(rules ...pipeline.Rule) func(http.Handler) http.Handler {
	pipeline := pipeline.New(rules...)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			passage, refusal := pipeline.Enter(&keyfuncs.Request{Request: r})
			if refusal != nil {
				refusal.Answer(w, r)
				return
			}
			defer passage.Abort() // counts when the handler panics
			next.ServeHTTP(passage.Watch(w), r.WithContext(passage.Context()))
			passage.Leave(http.StatusOK)
		})
	}
}

func build(app conformance.App) http.Handler {
	mux := http.NewServeMux()
	for _, route := range app.Routes {
		mux.Handle(route.Method+" "+route.Path, handler(app, route))
	}
	h := http.Handler(mux)
	for i := len(app.Use) - 1; i >= 0; i-- {
		h = guard(app.Use[i]...)(h)
	}
	inner := h
	h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := r.Header.Get(conformance.UserHeader)
		inner.ServeHTTP(w, r.WithContext(keyfuncs.WithValue(r.Context(), conformance.UserKey, user)))
	})
	if app.Recover == conformance.RecoverOutside {
		h = recoverer(h)
	}
	return h
}

func handler(app conformance.App, route conformance.Route) http.Handler {
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if route.Between != nil {
			route.Between()
		}
		route.Handler(exchange{w, r})
	})
	if app.Recover == conformance.RecoverInside {
		h = recoverer(h)
	}
	if len(route.Rules) > 0 {
		h = guard(route.Rules...)(h)
	}
	return h
}

func recoverer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

type exchange struct {
	w http.ResponseWriter
	r *http.Request
}

func (e exchange) Request() *http.Request      { return e.r }
func (e exchange) Writer() http.ResponseWriter { return e.w }

func (e exchange) Reply(status int, body string) {
	e.w.WriteHeader(status)
	if body != "" {
		_, _ = e.w.Write([]byte(body)) // the client may have gone
	}
}

func (e exchange) Decision(guard string) (core.Decision, bool) {
	return pipeline.Decision(e.r.Context(), guard)
}

func (e exchange) Take(guard string) (core.Decision, bool) {
	return pipeline.Take(e.r.Context(), guard)
}

func (e exchange) Spend(guard string, n int64) error {
	return pipeline.Spend(e.r.Context(), guard, n)
}

func (e exchange) Page(p pipeline.Page) { p.ServePage(e.w, &keyfuncs.Request{Request: e.r}) }
