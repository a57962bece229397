package adaptertest

import (
	"errors"
	"net/http"

	"github.com/gatehouse-go/gatehouse/internal/testkit/spoofing"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// spoofedAddresses runs the table of what clients and proxies say about the client. The handlers reply with
// the client that was counted.
func spoofedAddresses(s *scene) {
	apps := s.whoApps()
	for _, c := range spoofing.Cases() {
		status, body := wantWho(c)
		if w := send(apps[c.IP], signedIn(c.Request())); w.Code != status || w.Body.String() != body {
			s.Errorf("%s: %d %s, want %d %s", c.Name, w.Code, cutLong(w.Body.String()), status, body)
		}
	}
}

// whoApps makes an application for each way to find the client's address.
func (s *scene) whoApps() map[string]http.Handler {
	apps := map[string]http.Handler{}
	for name, who := range spoofing.Functions() {
		apps[name] = s.framework.Build(onThings(func(c Context) {
			d, _ := c.Decision("own")
			c.Reply(http.StatusOK, d.Attempt.Actor)
		}, pipeline.Rule{Guard: &stub{name: "own"}, Who: who}))
	}
	return apps
}

// wantWho is the expected answer of such an application.
func wantWho(c spoofing.Case) (status int, body string) {
	switch {
	case errors.Is(c.Err, keyfuncs.ErrMissing):
		return http.StatusBadRequest, noKey
	case c.Err != nil:
		return http.StatusBadRequest, malformed
	}
	return http.StatusOK, c.Want
}

func signedIn(r *http.Request) *http.Request {
	r.Header.Set(UserHeader, "ann")
	return r
}

func cutLong(s string) string { return s[:min(len(s), 200)] }
