package adaptertest

import (
	"net/http"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/ops/operator"
)

// operatorsSignIn as users of the framework do: behind a login that stores the user with c.Set, every
// operator was refused, since Authorize got a plain http.Request.
func operatorsSignIn(s *scene) {
	ops := operator.New(operator.Options{
		Guards: []core.Guard{limit.NewSlidingWindow(s.gate, "limit", limit.PerHour(2))},
		Authorize: func(r *keyfuncs.Request, _ operator.Action) (string, error) {
			return keyfuncs.User(UserKey)(r)
		},
	})
	app := s.framework.Build(App{Routes: []Route{
		{Method: http.MethodGet, Path: "/ops/limit/{action}", Handler: func(c Context) { c.Page(ops) }},
	}})
	for user, want := range map[string]int{"X-User: eve": http.StatusOK, "X-User:": http.StatusForbidden} {
		if w := send(app, request(http.MethodGet, "/ops/limit/peek?actor=ann", user)); w.Code != want {
			s.Errorf("%q: %d %s, want %d", user, w.Code, w.Body, want)
		}
	}
}
