package adaptertest

import (
	"net/http"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

func TestRulesAreRolledOutGradually(t *testing.T) { onMini(t, rolloutsAreGradual) }

func rolloutsAreGradual(s *scene) {
	s.sub("a new limit in the shadow of an old one", rolloutsAreGradualANewLimitInTheShadowOfAnOldOne)

	s.sub("what is in the shadow says nothing to clients", whatIsInTheShadowSaysNothingToClients)

	s.sub("a claim in the shadow takes, and gives back", aClaimInTheShadowTakesAndGivesBack)

	s.sub("nobody is banned for what would have been refused", nobodyIsBannedForWhatWouldHaveBeenRefused)

	s.sub("the kill switch", rolloutsAreGradualTheKillSwitch)

	s.sub("an outage", func(s *scene) {
		rule, _ := inShadow(rate(&stub{name: "away", check: failing}))
		s.wantPosts(s.framework.Build(onThings(ok, rule)), thing, asAnn, 200)
	})
}

func rolloutsAreGradualANewLimitInTheShadowOfAnOldOne(s *scene) {
	tight, try := inShadow(rate(limit.NewSlidingWindow(s.gate, "new", limit.PerHour(2))))
	app := s.framework.Build(onThings(ok, tight, rate(limit.NewSlidingWindow(s.gate, "old", limit.PerHour(4)))))
	s.wantPosts(app, thing, asAnn, 200, 200, 200, 200, 429, 429)
	if r := try.Report(); r.Passed != 2 || r.WouldRefuse != 4 || r.Refused != 0 || r.Skipped != 0 {
		s.Errorf("%+v, want 2 that pass and 4 that would be refused", r)
	}
}

func whatIsInTheShadowSaysNothingToClients(s *scene) {
	tight, _ := inShadow(rate(limit.NewSlidingWindow(s.gate, "new", limit.PerHour(1))))
	handler := func(c Context) {
		d, found := c.Decision("new")
		c.Reply(http.StatusOK, map[bool]string{true: "found", false: "none"}[found && d.Attempt.Shadow])
	}
	app := s.framework.Build(onThings(handler, tight))
	for _, want := range []string{"found", "none"} { // allowed, and would have been refused
		w := send(app, request(http.MethodPost, thing))
		if w.Code != http.StatusOK || w.Body.String() != want || w.Header().Get("Ratelimit") != "" ||
			w.Header().Get("Retry-After") != "" {
			s.Errorf("%d %s %v, want 200 %s", w.Code, w.Body, w.Header(), want)
		}
	}
}

func aClaimInTheShadowTakesAndGivesBack(s *scene) {
	votes := votes.New(s.gate, "vote", votes.Options{})
	rule, try := inShadow(vote(votes))
	status := http.StatusBadRequest
	app := s.framework.Build(onThings(func(c Context) { c.Reply(status, "done") }, rule))
	s.wantPosts(app, thing, asAnn, 400)
	s.wantTally(votes, map[string]int64{})
	status = http.StatusOK
	s.wantPosts(app, thing, asAnn, 200, 200)
	s.wantTally(votes, map[string]int64{"red": 1})
	if r := try.Report(); r.WouldRefuse != 1 {
		s.Errorf("%+v, want one that would be refused", r)
	}
}

func nobodyIsBannedForWhatWouldHaveBeenRefused(s *scene) {
	rule, _ := inShadow(rate(limit.NewSlidingWindow(s.gate, "limit", limit.PerHour(1))))
	rule.Bans = bans.New(s.gate, "bans", bans.Options{Refusals: 1, Period: time.Hour, First: time.Hour})
	s.wantPosts(s.framework.Build(onThings(ok, rule)), thing, asAnn, times(9, 200)...)
	rule.Rollout = nil
	s.wantPosts(s.framework.Build(onThings(ok, rule)), thing, asAnn, 429, 429, 429)
	if banned, err := rule.Bans.Check(s.Context(), core.Attempt{Actor: "ann"}); err != nil || banned.Allowed {
		s.Errorf("%+v, %v, want a ban for refusals that were met", banned, err)
	}
}

func rolloutsAreGradualTheKillSwitch(s *scene) {
	rule := rate(limit.NewSlidingWindow(s.gate, "limit", limit.PerHour(1)))
	rule.Rollout = new(pipeline.Rollout)
	app := s.framework.Build(onThings(ok, rule))
	s.wantPosts(app, thing, asAnn, 200, 429)
	rule.Rollout.Switch(false)
	s.wantPosts(app, thing, asAnn, 200, 200, 200)
	rule.Rollout.Switch(true)
	s.wantPosts(app, thing, asAnn, 429)
}
