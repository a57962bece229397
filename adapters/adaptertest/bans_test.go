package adaptertest

import (
	"net/http"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// okBody is what the handler ok answers.
const okBody = "done"

// twoRefusals returns bans after two refusals.
func twoRefusals(s *scene) *bans.Guard {
	return bans.New(s.gate, "bans", bans.Options{Refusals: 2, Period: time.Hour, First: time.Hour})
}

func TestAUserWhoIsRefusedTooOftenIsBanned(t *testing.T) { onRedis(t, bansFollowRefusals) }

func bansFollowRefusals(s *scene) {
	s.sub("by a limit", bansFollowRefusalsByALimit)

	s.sub("by one rule of several that share them", bansByOneRuleOfSeveral)

	s.sub("as a guard that stands alone", bansFollowRefusalsAsAGuardThatStandsAlone)

	s.sub("and what earlier rules took is given back", whatRulesBeforeABanTookIsGivenBack)

	s.sub("but not for what is no refusal by the guard", noBansForWhatIsNoRefusalByTheGuard)

	s.sub("nor for what the server is to blame for", noBansForWhatTheServerIsToBlameFor)

	s.sub("and a rule goes on without, when Redis cannot be asked", aRuleGoesOnWithoutItsBans)

	s.sub("under the key that the rule finds", bansFollowRefusalsUnderTheKeyThatTheRuleFinds)
}

func bansFollowRefusalsByALimit(s *scene) {
	rule := rate(limit.NewSlidingWindow(s.gate, "limit", limit.PerHour(1)))
	rule.Bans = twoRefusals(s)
	app := s.framework.Build(onThings(ok, rule))
	// The refusal that is one too many is still the limit's own.
	s.wantBodies(app, asAnn, okBody, limited, limited, limited, banned, banned)
	s.wantBodies(app, asBob, okBody, limited)
	if err := rule.Bans.(*bans.Guard).Unban(s.Context(), core.Attempt{Actor: "ann"}); err != nil {
		s.Error(err)
	}
	s.wantBodies(app, asAnn, limited)
}

func bansByOneRuleOfSeveral(s *scene) {
	shared := twoRefusals(s)
	tight, votes := rate(limit.NewSlidingWindow(s.gate, "limit", limit.PerHour(1))),
		vote(votes.New(s.gate, "vote", votes.Options{}))
	tight.Bans, votes.Bans = shared, shared
	reports := s.framework.Build(onThings(ok, tight))
	polls := s.framework.Build(onThings(ok, votes))
	s.wantBodies(reports, asAnn, okBody, limited)
	again := duplicate(`,"choices":["red"]`)
	s.wantBodies(polls, asAnn, okBody, again, again, banned)
	s.wantBodies(reports, asAnn, banned)
}

func bansFollowRefusalsAsAGuardThatStandsAlone(s *scene) {
	alone := twoRefusals(s)
	app := s.framework.Build(onThings(ok, rate(alone)))
	s.wantBodies(app, asAnn, okBody, okBody)
	if err := alone.Ban(s.Context(), core.Attempt{Actor: "ann"}, time.Hour); err != nil {
		s.Error(err)
	}
	s.wantBodies(app, asAnn, banned)
	s.wantBodies(app, asBob, okBody)
}

func whatRulesBeforeABanTookIsGivenBack(s *scene) {
	site := rate(limit.NewSlidingWindow(s.gate, "site", limit.PerHour(2)))
	rule := rate(limit.NewSlidingWindow(s.gate, "limit", limit.PerHour(1)))
	rule.Bans = twoRefusals(s)
	app := s.framework.Build(onThings(ok, site, rule))
	s.wantBodies(app, asAnn, okBody, limited, limited, limited, banned, banned)
	s.wantBodies(s.framework.Build(onThings(ok, site)), asAnn, okBody, limitedBy("site"))
}

func noBansForWhatIsNoRefusalByTheGuard(s *scene) {
	rule := withCost(vote(votes.New(s.gate, "vote", votes.Options{Poll: votes.Poll{Choices: []string{"red"}}})))
	rule.Bans = twoRefusals(s)
	app := s.framework.Build(onThings(reply(http.StatusForbidden, "no"), rule))
	for range 5 {
		s.wantBodies(app, []string{"X-Choice: pink"}, invalid)
		s.wantBodies(app, []string{"X-Choice:"}, noKey)
		s.wantBodies(app, []string{"X-Cost: 0"}, invalid)
		s.wantBodies(app, []string{`Idempotency-Key: "k1`}, malformed)
		s.wantBodies(app, asAnn, "no") // the handler's own refusal
	}
}

func noBansForWhatTheServerIsToBlameFor(s *scene) {
	shared := twoRefusals(s)
	for _, c := range []struct {
		rule   pipeline.Rule
		bodies []string
	}{
		{claim(seckill.New(s.gate, "sale", seckill.Options{})), []string{notReady, notReady, notReady}},
		{claim(&stub{name: "own", check: failing}), []string{undecided, undecided, undecided}},
		{
			claim(&localStub{stub: stub{name: "local", check: failing, traits: core.Traits{Outage: core.FailLocal}}}),
			[]string{limitedBy("local"), undecided},
		},
	} {
		c.rule.Bans = shared
		s.wantBodies(s.framework.Build(onThings(ok, c.rule)), asAnn, c.bodies...)
	}
	if got, err := shared.Status(s.Context(), core.Attempt{Actor: "ann"}); err != nil ||
		got != (bans.Status{}) {
		s.Errorf("%+v, %v, want no strikes", got, err)
	}
}

func aRuleGoesOnWithoutItsBans(s *scene) {
	rule := rate(limit.NewSlidingWindow(s.gate, "limit", limit.PerHour(1)))
	rule.Bans = bans.New(s.down(), "bans", bans.Options{Refusals: 1})
	rule.NoKey = pipeline.NoKeySkip
	app := s.framework.Build(onThings(ok, rule))
	s.wantBodies(app, asAnn, okBody, limited, limited, limited, limited)
	s.wantBodies(app, []string{"X-User:"}, okBody)
}

func bansFollowRefusalsUnderTheKeyThatTheRuleFinds(s *scene) {
	rule := rate(limit.NewSlidingWindow(s.gate, "limit", limit.PerHour(1)))
	rule.Who, rule.Bans = keyfuncs.Join(keyfuncs.User(UserKey), keyfuncs.Header("X-Choice")), twoRefusals(s)
	app := s.framework.Build(onThings(ok, rule))
	s.wantBodies(app, asAnn, okBody, limited, limited, limited, banned)
	s.wantBodies(app, []string{"X-Choice: blue"}, okBody)
}
