package adaptertest

import (
	"net/http"
)

// wantBodies posts once for each body, and wants it.
func (s *scene) wantBodies(app http.Handler, headers []string, bodies ...string) {
	s.Helper()
	for i, want := range bodies {
		if w := send(app, request(http.MethodPost, thing, headers...)); w.Body.String() != want {
			s.Errorf("%q, time %d: %d %s, want %s", headers, i+1, w.Code, w.Body, want)
		}
	}
}

// asBob are the headers of another user.
var asBob = []string{"X-User: bob"}
