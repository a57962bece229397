package adaptertest

import (
	"net/http"

	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/warntest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// twiceIsWarnedOf mounts rules around the application and on its route.
func twiceIsWarnedOf(s *scene) {
	log := warntest.Record(s)
	site := rate(limit.NewSlidingWindow(s.gate, "site", limit.PerHour(10)))
	votes := vote(votes.New(s.gate, "vote", votes.Options{}))
	votes.What = keyfuncs.Const("t1") // the parameter is not known around the application
	byThing := site
	byThing.What = keyfuncs.Param("thing")
	app := func(inner pipeline.Rule, outer ...[]pipeline.Rule) http.Handler {
		a := onThings(ok, inner)
		a.Use = outer
		return s.framework.Build(a)
	}
	other := rate(limit.NewSlidingWindow(s.gate, "other", limit.PerHour(10)))
	s.wantPosts(app(other, []pipeline.Rule{site}), thing, nil, 200)
	// one guard with two rules, which count apart
	s.wantPosts(app(byThing, []pipeline.Rule{site}), thing, nil, 200)
	log.Want(s)

	twice := app(site, []pipeline.Rule{other}, []pipeline.Rule{site})
	s.wantPosts(twice, thing, nil, 200, 200)
	if told := log.Want(s, "GH004")[0]; told["guard"] != "site" {
		s.Errorf("warned of %v", told)
	}
	s.wantPosts(app(votes, []pipeline.Rule{votes}), thing, nil, 409)
	if told := log.Want(s, "GH004")[0]; told["guard"] != "vote" {
		s.Errorf("warned of %v", told)
	}
}

// unroutedIsWarnedOf asks for paths that do not exist, and for one that does, and warns of neither where the
// rule is on the route.
func unroutedIsWarnedOf(s *scene) {
	log := warntest.Record(s)
	rule := rate(limit.NewSlidingWindow(s.gate, "site", limit.PerHour(1000)))
	rule.What = keyfuncs.Route()
	app := s.framework.Build(onThings(ok, rule))
	s.wantPosts(app, "/nowhere", nil, times(200, 404)...)
	s.wantPosts(app, thing, nil, 200)
	s.wantPosts(app, "/nowhere", nil, times(200, 404)...)
	log.Want(s)
}
