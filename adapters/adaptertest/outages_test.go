package adaptertest

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

func TestAnOutageIsAnsweredAsTheRuleSays(t *testing.T) { onMini(t, outages) }

func outages(s *scene) {
	down := s.down()
	open := core.Traits{Outage: core.FailOpen}
	for _, c := range []struct {
		name   string
		rule   pipeline.Rule
		policy core.Outage
		passes bool
	}{
		{"a limit closes where the rule says so", rate(limit.NewSlidingWindow(down, "limit", limit.PerMinute(9))),
			core.FailClosed, false},
		{"a limit opens where the rule says so", rate(limit.NewSlidingWindow(down, "limit2", limit.PerMinute(9))),
			core.FailOpen, true},
		{"a vote closes", vote(votes.New(down, "vote", votes.Options{})), core.FailDefault, false},
		{"a vote opens where the rule says so", vote(votes.New(down, "vote2", votes.Options{})), core.FailOpen,
			true},
		{"a sale closes", claim(seckill.New(down, "sale", seckill.Options{})), core.FailDefault, false},
		{"a guard opens by its traits", claim(&stub{name: "own", traits: open, check: failing}), core.FailDefault,
			true},
		{"a rule overrules the traits", claim(&stub{name: "own", traits: open, check: failing}), core.FailClosed,
			false},
		{"a guard of no policy closes", claim(&stub{name: "own", check: failing}), core.FailDefault, false},
	} {
		s.sub(c.name, func(s *scene) {
			ran := false
			c.rule.OnOutage = c.policy
			app := s.framework.Build(onThings(func(ctx Context) {
				ran = true
				if d, found := ctx.Decision(c.rule.Guard.Name()); found {
					s.Errorf("nothing was decided, but the handler finds %+v", d)
				}
				if d, found := ctx.Take(c.rule.Guard.Name()); found {
					s.Errorf("nothing was decided, but the handler takes %+v", d)
				}
				ok(ctx)
			}, c.rule))
			w := send(app, request(http.MethodPost, thing))
			switch {
			case ran != c.passes:
				s.Errorf("the handler ran: %t, want %t", ran, c.passes)
			case c.passes && w.Code != http.StatusOK:
				s.Errorf("%d %s, want 200", w.Code, w.Body)
			case !c.passes:
				golden{http.StatusServiceUnavailable, "1", undecided}.check(s, w, figures{})
			}
		})
	}

	s.sub("a guard decides inside the process where the rule says so", aGuardDecidesInsideTheProcess)

	s.sub("nonsense is refused by an open rule too", outagesNonsenseIsRefusedByAnOpenRuleToo)
}

func aGuardDecidesInsideTheProcess(s *scene) {
	notes := &diary{}
	guard := &localStub{stub: stub{name: "own", check: failing, diary: notes}, left: 1}
	rule := claim(guard)
	rule.OnOutage = core.FailLocal
	app := s.framework.Build(onThings(func(c Context) {
		if d, found := c.Decision("own"); !found || d.Attempt.Actor != "ann" {
			s.Errorf("the handler finds %+v, %t", d, found)
		}
		ok(c)
	}, rule))
	s.wantPosts(app, thing, nil, http.StatusOK)
	notes.want(s, "check own", "check own here", "settle own true")
	golden{http.StatusTooManyRequests, "", limitedBy("own")}.check(s,
		send(app, request(http.MethodPost, thing)), figures{})
	golden{http.StatusServiceUnavailable, "1", undecided}.check(s, send(app, request(http.MethodPost, thing)),
		figures{})
	notes.want(s, "check own", "check own here", "check own", "check own here")
}

func outagesNonsenseIsRefusedByAnOpenRuleToo(s *scene) {
	rule := withCost(rate(limit.NewSlidingWindow(s.down(), "limit", limit.PerMinute(9))))
	rule.OnOutage = core.FailOpen
	app := s.framework.Build(onThings(ok, rule))
	golden{http.StatusBadRequest, "", invalid}.check(s,
		send(app, request(http.MethodPost, thing, "X-Cost: -1")), figures{})
}

// localStub is a stub that can decide inside the process: it allows some attempts, refuses the next one,
// and then fails.
type localStub struct {
	stub
	left int
}

func (g *localStub) CheckLocal(_ context.Context, a core.Attempt) (core.Decision, error) {
	g.diary.note("check " + g.name + " here")
	g.left--
	switch {
	case g.left >= 0:
		return core.Decision{Attempt: a, Allowed: true, Reason: core.ReasonOK}, nil
	case g.left == -1:
		return core.Decision{Attempt: a, Reason: core.ReasonLimited}, nil
	}
	return core.Decision{}, errors.New("no memory")
}

// failing is a stub's check that cannot decide.
func failing(core.Attempt) (core.Decision, error) { return core.Decision{}, errors.New("no answer") }
