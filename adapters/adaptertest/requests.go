package adaptertest

import (
	"net/http"

	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
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

// slashesAreTold states what becomes of a rule on a subtree when a client escapes the slash. The cause lies
// in the routers; where one changes, docs/guides/rules.md has to change too. PlainPaths helps in all.
func slashesAreTold(s *scene) {
	rule := rate(limit.NewSlidingWindow(s.gate, "files", limit.PerHour(1)))
	serve := func(c Context) { c.Reply(http.StatusOK, c.Request().URL.Path) }
	app := s.framework.Build(App{Routes: []Route{
		{Method: http.MethodPost, Path: "/files/{name}", Rules: []pipeline.Rule{rule}, Handler: serve},
		{Method: http.MethodPost, Path: "/{name}", Handler: serve},
	}})
	s.wantPosts(app, "/files/a.txt", nil, 200, 429)
	const escaped = "/files%2Fa.txt"
	switch s.framework.Slash {
	case SlashPasses:
		s.wantPosts(app, escaped, nil, 200, 200)
		if w := send(app, request(http.MethodPost, escaped)); w.Body.String() != "/files/a.txt" {
			s.Errorf("the handler sees %s", w.Body)
		}
	case SlashSplits:
		s.wantPosts(app, escaped, nil, 429)
	case SlashNowhere:
		s.wantPosts(app, escaped, nil, 404, 404)
	}
	plain := pipeline.PlainPaths(app)
	s.wantPosts(plain, escaped, nil, 400)
	s.wantPosts(plain, "/files%5Ca.txt", nil, 400)
	s.wantPosts(plain, "/files/a.txt", nil, 429)
	s.wantPosts(plain, "/a.txt", nil, 200)
}

func routesCount(s *scene) {
	rule := rate(limit.NewSlidingWindow(s.gate, "limit", limit.PerHour(2)))
	rule.What = keyfuncs.Route()
	app := s.framework.Build(App{Routes: []Route{
		{Method: http.MethodPost, Path: "/things/{thing}", Rules: []pipeline.Rule{rule}, Handler: ok},
		{Method: http.MethodPost, Path: "/other/{thing}", Rules: []pipeline.Rule{rule}, Handler: ok},
	}})
	s.wantPosts(app, "/things/t1", nil, 200)
	s.wantPosts(app, "/things/t2", nil, 200)
	s.wantPosts(app, "/things/t3", nil, 429)
	s.wantPosts(app, "/other/t1", nil, 200, 200, 429)
}

func oneRuleOneBudget(s *scene) {
	rule := rate(limit.NewSlidingWindow(s.gate, "limit", limit.PerHour(2)))
	app := s.framework.Build(App{Routes: []Route{
		{Method: http.MethodPost, Path: "/things/{thing}", Rules: []pipeline.Rule{rule}, Handler: ok},
		{Method: http.MethodPost, Path: "/other/{thing}", Rules: []pipeline.Rule{rule}, Handler: ok},
	}})
	s.wantPosts(app, "/things/t1", nil, 200)
	s.wantPosts(app, "/other/t1", nil, 200)
	s.wantPosts(app, "/things/t1", nil, 429)
	s.wantPosts(app, "/other/t1", []string{"X-User: bob"}, 200)
}

func unmatchedCounts(s *scene) {
	app := onThings(ok)
	app.Use = [][]pipeline.Rule{{rate(limit.NewSlidingWindow(s.gate, "site", limit.PerHour(2)))}}
	handler := s.framework.Build(app)
	s.wantPosts(handler, "/nowhere", nil, 404)
	s.wantPosts(handler, thing, nil, 200)
	s.wantPosts(handler, "/nowhere", nil, 429)
}
