package adaptertest

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/idempotency"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/pipeline"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// facts is a claim with a figure for clients.
type facts struct{}

func (facts) Details() []kit.Detail { return []kit.Detail{{Name: "seat", Value: "4a"}} }

// replaying is a guard whose attempts repeat an earlier one.
func replaying(traits core.Traits, kept bool) *stub {
	check := func(a core.Attempt) (core.Decision, error) {
		d := core.Decision{Guard: "own", Attempt: a, Allowed: true, Reason: core.ReasonOK, Replayed: true,
			Kept: kept}
		d.SetClaim(facts{})
		return d, nil
	}
	return &stub{name: "own", traits: traits, diary: &diary{}, check: check}
}

var replayedBody = `{"title":"Already Done","status":200,"detail":"This request was already completed.",` +
	`"reason":"replayed","resource":"t1","seat":"4a"}` + "\n"

// replaysAreAnswered plays replays of what is done, and of what still has to be confirmed.
// confirms are the traits of a guard that needs a confirmation.
var confirms = core.Traits{Confirms: true}

func replaysAreAnswered(s *scene) {
	s.sub("done", replaysAreAnsweredDone)

	s.sub("not confirmed yet", replaysAreAnsweredNotConfirmedYet)

	s.sub("the handler runs", replaysAreAnsweredTheHandlerRuns)

	s.sub("a later rule refuses", func(s *scene) {
		kept := replaying(confirms, true)
		last := claim(&stub{name: "no", check: refusing("no", "no")})
		s.wantPosts(s.framework.Build(onThings(ok, claim(kept), last)), thing, nil, 403)
		kept.diary.want(s, "check own")
	})

	s.sub("an Idempotency rule has the answer", replaysAreAnsweredAnIdempotencyRuleHasTheAnswer)
}

func replaysAreAnsweredDone(s *scene) {
	for _, traits := range []core.Traits{{}, confirms} {
		guard := replaying(traits, true)
		site := limit.NewSlidingWindow(s.gate, fmt.Sprint("site-", traits.Confirms), limit.PerHour(1))
		rule := claim(guard)
		rule.Answer = func(http.ResponseWriter, *http.Request, *answers.Refusal) {
			s.Error("Answer was called")
		}
		ran := 0
		app := s.framework.Build(onThings(func(c Context) { ran++; ok(c) }, rate(site), rule))
		for range 2 { // the limit's unit is given back
			w := send(app, request(http.MethodPost, thing))
			s.wantReplay(w, 200, replayedBody)
			h := w.Header()
			if h.Get("Content-Type") != "application/json" || h.Get("Retry-After") != "" {
				s.Errorf("%v", h)
			}
			guard.diary.want(s, "check own") // there is nothing to settle
		}
		s.wantReplay(send(app, request(http.MethodPost, thing, "Accept: text/plain")), 200,
			"Already Done\n\nThis request was already completed.\n")
		page := send(app, request(http.MethodPost, thing, "Accept: text/html"))
		if page.Code != 200 || !strings.Contains(page.Body.String(), "<h1>Already done</h1>") {
			s.Errorf("%d %s", page.Code, page.Body)
		}
		if ran != 0 {
			s.Errorf("the handler ran %d times", ran)
		}
	}
}

func replaysAreAnsweredNotConfirmedYet(s *scene) {
	guard, ran := replaying(confirms, false), 0
	app := s.framework.Build(onThings(func(c Context) { ran++; ok(c) }, claim(guard)))
	w := send(app, request(http.MethodPost, thing))
	body := strings.Replace(inProgress, "}\n", `,"seat":"4a"}`+"\n", 1)
	golden{409, "1", body}.check(s, w, figures{})
	guard.diary.want(s, "check own", "settle own false")
	if ran != 0 {
		s.Error("the handler ran")
	}
}

func replaysAreAnsweredTheHandlerRuns(s *scene) {
	kept, held := replaying(confirms, true), replaying(confirms, false)
	runs := func(g *stub) pipeline.Rule {
		rule := claim(g)
		rule.RunReplays = true
		return rule
	}
	shadow, _ := inShadow(claim(kept))
	fresh := s.sale("sale", seckill.Sale{Stock: 9})
	for name, rules := range map[string][]pipeline.Rule{
		"as the rule says, done":                 {runs(kept)},
		"as the rule says, not confirmed yet":    {runs(held)},
		"in the shadow":                          {shadow},
		"of a guard that needs no confirmation":  {claim(replaying(core.Traits{}, false))},
		"for a claim beside it that is not done": {claim(kept), claim(fresh)},
	} {
		ran := 0
		s.wantPosts(s.framework.Build(onThings(func(c Context) { ran++; ok(c) }, rules...)), thing, nil, 200)
		if ran != 1 {
			s.Errorf("%s: the handler ran %d times", name, ran)
		}
	}
	s.wantSale(fresh, 8, 0, 1)
}

func replaysAreAnsweredAnIdempotencyRuleHasTheAnswer(s *scene) {
	once := s.once(idempotency.Options{MaxBody: 100})
	s.wantPosts(s.framework.Build(onThings(reply(201, "made"), once)), thing, orderKey, 201)
	for _, rules := range [][]pipeline.Rule{
		{once, claim(replaying(confirms, true))}, {claim(replaying(confirms, true)), once},
	} {
		w := send(s.framework.Build(onThings(ok, rules...)), request(http.MethodPost, thing, orderKey...))
		s.wantReplay(w, 201, "made")
	}
}
