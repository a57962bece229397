package nethttpmw_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/gatehouse-go/gatehouse/adapters/adaptertest"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// Promise (Endings): The handler's status decides, whatever the connection or the context does. This holds
// for each adapter.
//
// Promise (Endings): A half-closed connection does not undo an answered claim.
//
// Promise (Endings): Middleware that ends the context does not oversell.
//
// Promise (Endings): A slow body does not outlast the hold.
func TestConformanceOfServeMux(t *testing.T) {
	adaptertest.Run(t,
		adaptertest.Framework{Build: buildMux, Mount: mount, PerIP: perIP, Redis: redistest.Client})
}

// TestConformanceOfChi: the adapter has been on a redis-server, so a Redis inside the process is enough.
//
// Promise (Semaphore): A request holds its permit until its handler has returned, however it ends.
func TestConformanceOfChi(t *testing.T) {
	if !redistest.All() {
		t.Log("left to make all: the adapter is the one of TestConformanceOfServeMux")
		return
	}
	adaptertest.Run(t, adaptertest.Framework{Build: buildChi, Mount: mount, PerIP: perIP})
}

func perIP(gate *core.Engine, at limit.Limit, trusted ...keyfuncs.IPOption) http.Handler {
	return nethttpmw.PerIP(gate, at, trusted...)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok")
	}))
}

func mount(rules ...nethttpmw.Rule) { nethttpmw.HTTP(rules...) }

func buildMux(app adaptertest.App) http.Handler {
	mux := http.NewServeMux()
	for _, route := range app.Routes {
		h := handler(route)
		if app.Recover == adaptertest.RecoverInside {
			h = middleware.Recoverer(h) // net/http has none; chi's is a middleware for net/http
		}
		if len(route.Rules) > 0 {
			h = nethttpmw.HTTP(route.Rules...)(h)
		}
		mux.Handle(route.Method+" "+route.Path, h)
	}
	var h http.Handler = mux
	for i := len(app.Use) - 1; i >= 0; i-- {
		h = nethttpmw.HTTP(app.Use[i]...)(h)
	}
	h = signIn(h)
	if app.Recover == adaptertest.RecoverOutside {
		h = middleware.Recoverer(h)
	}
	return h
}

func buildChi(app adaptertest.App) http.Handler {
	router := chi.NewRouter()
	if app.Recover == adaptertest.RecoverOutside {
		router.Use(middleware.Recoverer)
	}
	router.Use(signIn)
	for _, rules := range app.Use {
		router.Use(nethttpmw.HTTP(rules...))
	}
	for _, route := range app.Routes {
		var r chi.Router = router
		if len(route.Rules) > 0 {
			r = r.With(nethttpmw.HTTP(route.Rules...))
		}
		if app.Recover == adaptertest.RecoverInside {
			r = r.With(middleware.Recoverer)
		}
		r.Method(route.Method, route.Path, handler(route))
	}
	return router
}

// signIn is the application's own authentication.
func signIn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user := r.Header.Get(adaptertest.UserHeader); user != "" {
			r = r.WithContext(keyfuncs.WithValue(r.Context(), adaptertest.UserKey, user))
		}
		next.ServeHTTP(w, r)
	})
}

func handler(route adaptertest.Route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if route.Between != nil {
			route.Between()
		}
		route.Handler(exchange{w, r})
	})
}

// exchange is what the suite's handlers get.
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
	return nethttpmw.Decision(e.r.Context(), guard)
}

func (e exchange) Take(guard string) (core.Decision, bool) {
	return nethttpmw.Take(e.r.Context(), guard)
}

func (e exchange) Spend(guard string, n int64) error {
	return nethttpmw.Spend(e.r.Context(), guard, n)
}

func (e exchange) Page(p pipeline.Page) { p.ServePage(e.w, &keyfuncs.Request{Request: e.r}) }
