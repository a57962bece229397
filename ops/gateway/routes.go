package gateway

import (
	"net/http"
	"strings"

	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/ops/config"
)

// routes are the routes of a file. A ServeMux finds the pattern of a request, and nothing else: its redirects
// are for applications.
type routes struct {
	set *config.Set
	mux *http.ServeMux
}

// route is what a pattern leads to: its lists, and behind them pass.
type route struct {
	of    *routes
	lists http.Handler
}

// ServeHTTP implements http.Handler.
func (t route) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answerOf(r).led = true
	if !isWhole(r.Pattern, r.URL.Path) {
		if twin := t.of.twin(r); twin != nil {
			t.of.mux.ServeHTTP(w, twin)
			return
		}
	}
	t.lists.ServeHTTP(w, r)
}

// routes returns the routes of the file in force.
func (g *gateway) routes() *routes {
	set := g.live.Set()
	if known := g.routed.Load(); known != nil && known.set == set {
		return known
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if known := g.routed.Load(); known != nil && known.set == set {
		return known
	}
	made := &routes{set, http.NewServeMux()}
	for _, of := range set.Config().Routes() {
		var h http.Handler = http.HandlerFunc(pass)
		for i := len(of.Lists) - 1; i >= 0; i-- {
			h = nethttpmw.Follow(set.Pipeline(of.Lists[i]))(h)
		}
		made.mux.Handle(of.Pattern, route{made, h})
	}
	g.routed.Store(made)
	return made
}

// serve passes the request through the lists of its route, if it has one.
func (s *routes) serve(a *answer, r *http.Request) {
	if r.RequestURI == "*" { // of OPTIONS: it is about the server
		pass(a, r)
		return
	}
	s.mux.ServeHTTP(a, r)
	if a.led {
		return
	}
	*a = answer{header: http.Header{}} // without a redirect, or a 404 or 405, of the ServeMux
	if twin := s.twin(r); twin != nil {
		s.mux.ServeHTTP(a, twin)
		return
	}
	pass(a, r)
}

// twin returns the request with a slash at the end of its path, or without one, if that has a route that
// names all of its path. Applications often take the two for the same. That must not lead around a route.
func (s *routes) twin(r *http.Request) *http.Request {
	twin := otherEnd(r)
	if twin == nil {
		return nil
	}
	if h, pattern := s.mux.Handler(twin); !isWhole(pattern, twin.URL.Path) {
		return nil
	} else if _, leads := h.(route); !leads {
		return nil
	}
	return twin
}

// isWhole reports whether a pattern names all of a path, and not only what it begins with.
func isWhole(pattern, path string) bool {
	if pattern == "" || strings.HasSuffix(pattern, "...}") {
		return false
	}
	return !strings.HasSuffix(pattern, "/") || strings.Count(pattern, "/") == strings.Count(path, "/")
}

// otherEnd returns the request with a slash at the end of its path, or without one. It is nil for the root.
func otherEnd(r *http.Request) *http.Request {
	if r.URL.Path == "/" {
		return nil
	}
	u := *r.URL
	if strings.HasSuffix(u.Path, "/") {
		u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/"), strings.TrimSuffix(u.RawPath, "/")
	} else if u.Path += "/"; u.RawPath != "" {
		u.RawPath += "/"
	}
	other := *r
	other.URL = &u
	return &other
}
