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

// guarded is what a pattern leads to: its lists, and behind them pass.
type guarded struct{ http.Handler }

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
	for _, route := range set.Config().Routes() {
		var h http.Handler = http.HandlerFunc(pass)
		for i := len(route.Lists) - 1; i >= 0; i-- {
			h = nethttpmw.Follow(set.Pipeline(route.Lists[i]))(h)
		}
		made.mux.Handle(route.Pattern, guarded{h})
	}
	g.routed.Store(made)
	return made
}

// serve passes the request through the lists of its route, if it has one.
func (s *routes) serve(w http.ResponseWriter, r *http.Request) {
	if r.RequestURI == "*" { // of OPTIONS: it is about the server
		pass(w, r)
		return
	}
	leads, pattern := s.find(r)
	// Applications often take a path with a slash at its end for the one without, or the other way round. That
	// must not lead around a route.
	if twin := otherEnd(r); twin != nil && !isWhole(pattern, r.URL.Path) {
		if also, other := s.find(twin); also && isWhole(other, twin.URL.Path) {
			leads, r = true, twin
		}
	}
	if !leads {
		pass(w, r)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// find returns the pattern of a request, and whether it leads to lists of rules. A redirect does not.
func (s *routes) find(r *http.Request) (leads bool, pattern string) {
	h, pattern := s.mux.Handler(r)
	_, leads = h.(guarded)
	return leads, pattern
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
