package adaptertest_test

import (
	"net/http"
	"testing"

	"github.com/gatehouse-go/gatehouse/adapters/adaptertest"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// An adapter to net/http, as short as it can be, and its test.
func Example() {
	var t *testing.T // of func TestAdapter(t *testing.T)
	adaptertest.Run(t, adaptertest.Framework{
		Build: build,
		Mount: func(rules ...pipeline.Rule) { guard(rules...) },
	})
}

// guard is the middleware of the adapter.
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

// build makes an application, as a user of the adapter would.
func build(app adaptertest.App) http.Handler {
	mux := http.NewServeMux()
	for _, route := range app.Routes {
		mux.Handle(route.Method+" "+route.Path, handler(app, route))
	}
	h := http.Handler(mux)
	for i := len(app.Use) - 1; i >= 0; i-- {
		h = guard(app.Use[i]...)(h)
	}
	h = signIn(h)
	if app.Recover == adaptertest.RecoverOutside {
		h = recoverer(h)
	}
	return h
}

// signIn stands for a login.
func signIn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := r.Header.Get(adaptertest.UserHeader)
		next.ServeHTTP(w, r.WithContext(keyfuncs.WithValue(r.Context(), adaptertest.UserKey, user)))
	})
}

// handler makes the handler of a route, behind its rules.
func handler(app adaptertest.App, route adaptertest.Route) http.Handler {
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if route.Between != nil {
			route.Between()
		}
		route.Handler(exchange{w, r})
	})
	if app.Recover == adaptertest.RecoverInside {
		h = recoverer(h)
	}
	if len(route.Rules) > 0 {
		h = guard(route.Rules...)(h)
	}
	return h
}

// recoverer stands for that of a framework.
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

// exchange is what the handlers of the checks get.
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
