package adaptertest

import (
	"errors"
	"net/http"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

func TestWhatEarlierRulesTookIsGivenBackTheLatestFirst(t *testing.T) { onMini(t, latestFirst) }

func latestFirst(s *scene) {
	notes := &diary{}
	rule := func(name string) pipeline.Rule {
		return claim(&stub{name: name, diary: notes, traits: core.Traits{KeepsOnFailure: true}})
	}
	missing := rule("c")
	missing.Who = keyfuncs.Header("X-Missing")
	app := s.framework.Build(onThings(ok, rule("a"), rule("b"), missing))
	s.wantPosts(app, thing, nil, http.StatusBadRequest)
	notes.want(s, "check a", "check b", "settle b false", "settle a false")
}

// Promise: Several rules are all or nothing.
func TestSeveralRulesAreAllOrNothing(t *testing.T) { onRedis(t, allOrNothing) }

// allOrNothing plays three rules, of which the last one refuses in every possible way. The first two must get
// back what they took: the limit has one unit only, so a second request of the same user shows it.
func allOrNothing(s *scene) {
	noKey := func(*keyfuncs.Request) (string, error) { return "", keyfuncs.ErrMissing }
	for _, c := range []struct {
		name   string
		last   func(s *scene) pipeline.Rule
		status int
	}{
		{"a limit that is used up", func(s *scene) pipeline.Rule {
			rule := rate(limit.NewSlidingWindow(s.gate, "last", limit.PerHour(1)))
			rule.Who = keyfuncs.Const("everybody")
			app := s.framework.Build(onThings(ok, rule))
			s.wantPosts(app, thing, nil, 200)
			return rule
		}, 429},
		{"a stock that is sold out", func(s *scene) pipeline.Rule {
			rule := claim(s.sale("last", seckill.Sale{Stock: 1}))
			s.wantPosts(s.framework.Build(onThings(ok, rule)), thing, []string{"X-User: bob"}, 200)
			return rule
		}, 409},
		{"a sale that was never opened", func(s *scene) pipeline.Rule {
			return claim(seckill.New(s.gate, "last", seckill.Options{}))
		}, 503},
		{"a Redis that is down", func(s *scene) pipeline.Rule {
			return claim(seckill.New(s.down(), "last", seckill.Options{}))
		}, 503},
		{"a key that is missing", func(s *scene) pipeline.Rule {
			rule := claim(s.sale("last", seckill.Sale{Stock: 1}))
			rule.Who = noKey
			return rule
		}, 400},
		{"a cost that makes no sense", func(s *scene) pipeline.Rule {
			rule := claim(s.sale("last", seckill.Sale{Stock: 1}))
			rule.Cost = func(*keyfuncs.Request) (int64, error) { return 0, errors.New("no number") }
			return rule
		}, 400},
		{"a choice that is none", func(s *scene) pipeline.Rule {
			return vote(votes.New(s.gate, "last", votes.Options{Poll: votes.Poll{Choices: []string{"green"}}}))
		}, 400},
	} {
		s.sub(c.name, func(s *scene) {
			first := rate(limit.NewSlidingWindow(s.gate, "first", limit.PerHour(1)))
			votes := votes.New(s.gate, "second", votes.Options{})
			guarded := s.framework.Build(onThings(ok, first, vote(votes), c.last(s)))
			s.wantPosts(guarded, thing, nil, times(3, c.status)...)
			s.wantTally(votes, nil)

			s.wantPosts(s.framework.Build(onThings(ok, first, vote(votes))), thing, nil, 200, 429)
			s.wantTally(votes, map[string]int64{"red": 1})
		})
	}

	s.sub("a second rule refuses", allOrNothingASecondRuleRefuses)

	s.sub("all pass, and the handler fails", allOrNothingAllPassAndTheHandlerFails)
}

func allOrNothingASecondRuleRefuses(s *scene) {
	site := rate(limit.NewSlidingWindow(s.gate, "site", limit.PerHour(3)))
	votes := votes.New(s.gate, "vote", votes.Options{})
	app := s.framework.Build(onThings(ok, site, vote(votes)))
	s.wantPosts(app, thing, nil, 200, 409, 409, 409, 409)
	s.wantTally(votes, map[string]int64{"red": 1})
	s.wantPosts(app, "/things/t2", nil, 200)
	s.wantPosts(app, "/things/t3", nil, 200)
	s.wantPosts(app, "/things/t4", nil, 429) // three units went to three votes, none to the refused ones
}

func allOrNothingAllPassAndTheHandlerFails(s *scene) {
	site := rate(limit.NewSlidingWindow(s.gate, "site", limit.PerHour(9)))
	votes := votes.New(s.gate, "vote", votes.Options{})
	purchase := s.sale("sale", seckill.Sale{Stock: 2})
	rules := []pipeline.Rule{site, vote(votes), claim(purchase)}
	s.wantPosts(s.framework.Build(onThings(reply(500, "no"), rules...)), thing, nil, 500)
	s.wantTally(votes, nil)
	s.wantSale(purchase, 2, 0, 0)
	s.wantPosts(s.framework.Build(onThings(ok, rules...)), thing, nil, 200)
	s.wantTally(votes, map[string]int64{"red": 1})
	s.wantSale(purchase, 1, 0, 1)
}

func TestLimitsThatAreAskedTogetherAreAllOrNothing(t *testing.T) { onRedis(t, limitsTogether) }

// limitsTogether uses the first of three limits up behind the back of the process, so that it asks all of
// them together: what the others took comes back, and they leave no trace in the answer.
func limitsTogether(s *scene) {
	var rules []pipeline.Rule
	var guards []*limit.SlidingWindow
	ann := core.Attempt{Actor: "ann"}
	for _, name := range []string{"a", "b", "c"} {
		g := limit.NewSlidingWindow(s.gate, name, limit.PerHour(9))
		guards = append(guards, g)
		rules = append(rules, pipeline.Rule{Guard: g, Who: keyfuncs.Const("ann")})
	}
	app := s.framework.Build(onThings(ok, rules...))
	s.wantPosts(app, thing, nil, 200)
	other := limit.NewSlidingWindow(newEngine(s.backend.Client, s.backend.Prefix), "a", limit.PerHour(9))
	for range 8 {
		if d, err := other.Check(s.Context(), ann); err != nil || !d.Allowed {
			s.Fatalf("%+v, %v", d, err)
		}
	}
	s.wantPosts(app, thing, nil, 429, 429)
	for _, g := range guards[1:] {
		if d, err := g.Peek(s.Context(), ann); err != nil || d.Remaining != 8 {
			s.Errorf("%s has %d units left (%v), want 8", g.Name(), d.Remaining, err)
		}
	}
	if err := guards[0].Reset(s.Context(), ann); err != nil {
		s.Fatal(err)
	}
	s.wantPosts(app, thing, nil, 200)
}
