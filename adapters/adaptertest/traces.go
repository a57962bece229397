package adaptertest

import (
	"net/http"

	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/warntest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// unknownParamsAreWarnedOf mounts a rule with a parameter that its route does not have.
func unknownParamsAreWarnedOf(s *scene) {
	log := warntest.Record(s)
	rule := rate(limit.NewSlidingWindow(s.gate, "site", limit.PerHour(1000)))
	app := s.framework.Build(onThings(ok, rule))
	s.wantPosts(app, thing, nil, 200)
	known := rule
	known.What = keyfuncs.Param("thing")
	s.wantPosts(s.framework.Build(onThings(ok, known)), thing, nil, 200)
	log.Want(s)
	rule.What = keyfuncs.Param("thin")
	app = s.framework.Build(onThings(ok, rule))
	s.wantPosts(app, thing, nil, http.StatusBadRequest)
	if told := log.Want(s, "GH007")[0]; told["param"] != "thin" {
		s.Errorf("warned of %v", told)
	}
	s.wantPosts(app, thing, nil, http.StatusBadRequest)
	log.Want(s)
}
