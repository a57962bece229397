package conformance

import (
	"net/http"

	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
)

// spellingsAreOne plays a voter who writes the same path in other ways, for another vote.
func spellingsAreOne(s *scene) {
	votes := votes.New(s.gate, "vote", votes.Options{})
	ran := 0
	app := s.framework.Build(onThings(func(c Context) { ran++; ok(c) }, vote(votes)))
	s.wantPosts(app, "/things/t1", nil, 200)
	for _, path := range []string{"/things/%741", "/things/t%31", "/things/%74%31"} {
		s.wantPosts(app, path, nil, 409)
	}
	if ran != 1 {
		s.Errorf("the handler ran %d times", ran)
	}
	s.wantTally(votes, map[string]int64{"red": 1})
}

func routesCount(s *scene) {
	rule := rate(limit.NewSlidingWindow(s.gate, "limit", limit.PerHour(2)))
	rule.What = keyfuncs.Route()
	app := s.framework.Build(App{Routes: []Route{
		{Method: http.MethodPost, Path: "/things/{thing}", Rules: []nethttpmw.Rule{rule}, Handler: ok},
		{Method: http.MethodPost, Path: "/other/{thing}", Rules: []nethttpmw.Rule{rule}, Handler: ok},
	}})
	s.wantPosts(app, "/things/t1", nil, 200)
	s.wantPosts(app, "/things/t2", nil, 200)
	s.wantPosts(app, "/things/t3", nil, 429)
	s.wantPosts(app, "/other/t1", nil, 200, 200, 429)
}

func oneRuleOneBudget(s *scene) {
	rule := rate(limit.NewSlidingWindow(s.gate, "limit", limit.PerHour(2)))
	app := s.framework.Build(App{Routes: []Route{
		{Method: http.MethodPost, Path: "/things/{thing}", Rules: []nethttpmw.Rule{rule}, Handler: ok},
		{Method: http.MethodPost, Path: "/other/{thing}", Rules: []nethttpmw.Rule{rule}, Handler: ok},
	}})
	s.wantPosts(app, "/things/t1", nil, 200)
	s.wantPosts(app, "/other/t1", nil, 200)
	s.wantPosts(app, "/things/t1", nil, 429)
	s.wantPosts(app, "/other/t1", []string{"X-User: bob"}, 200)
}

func unmatchedCounts(s *scene) {
	app := onThings(ok)
	app.Use = [][]nethttpmw.Rule{{rate(limit.NewSlidingWindow(s.gate, "site", limit.PerHour(2)))}}
	handler := s.framework.Build(app)
	s.wantPosts(handler, "/nowhere", nil, 404)
	s.wantPosts(handler, thing, nil, 200)
	s.wantPosts(handler, "/nowhere", nil, 429)
}
