package adaptertest

import (
	"net/http"
	"strings"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

func decisionsAreFound(s *scene) {
	votes := votes.New(s.gate, "vote", votes.Options{})
	var inHandler, after []bool
	app := s.framework.Build(App{
		Use: [][]pipeline.Rule{
			{rate(limit.NewSlidingWindow(s.gate, "outer", limit.PerHour(5)))},
			{rate(limit.NewSlidingWindow(s.gate, "middle", limit.PerHour(7))),
				rate(limit.NewSlidingWindow(s.gate, "second", limit.PerHour(9)))},
		},
		Routes: []Route{{
			Method: http.MethodPost, Path: "/things/{thing}", Rules: []pipeline.Rule{vote(votes)},
			Handler: func(c Context) {
				for _, name := range []string{"outer", "middle", "second", "vote", "unheard-of"} {
					d, found := c.Decision(name)
					inHandler = append(inHandler, found)
					if found && (d.Guard != name || !d.Allowed || d.Reason != core.ReasonOK || d.Attempt.Actor != "ann") {
						s.Errorf("%s: %+v", name, d)
					}
					// The handler may pass the request's context on to what is not the framework's.
					same, found := pipeline.Decision(c.Request().Context(), name)
					after = append(after, found && same.Attempt == d.Attempt)
				}
				if d, _ := c.Decision("outer"); d.Limit != 5 || d.Remaining != 4 {
					s.Errorf("outer: %d of %d are left", d.Remaining, d.Limit)
				}
				if d, _ := c.Decision("vote"); d.Attempt.Item != "red" || d.Attempt.Resource != "t1" ||
					d.Attempt.ID == "" {
					s.Errorf("vote: %+v", d.Attempt)
				}
				ok(c)
			},
		}},
	})
	s.wantPosts(app, thing, nil, 200)
	for _, found := range [][]bool{inHandler, after} {
		if len(found) != 5 || !found[0] || !found[1] || !found[2] || !found[3] || found[4] {
			s.Errorf("found: %v, want all but the last", found)
		}
	}
}

// takenWaits plays a handler that takes the reservation, so that the end of the request does not settle it.
func takenWaits(s *scene) {
	for _, e := range endings {
		if e.begun {
			continue // it has been confirmed before the header went out: there is nothing to take
		}
		s.sub(e.name, func(s *scene) {
			purchase := s.sale("sale", seckill.Sale{Stock: 5})
			var taken core.Decision
			e.handler = takes(s, e.handler, &taken)
			e.play(s, claim(purchase))
			s.wantSale(purchase, 4, 1, 0)

			if d, err := purchase.Confirm(s.Context(), taken.Attempt); err != nil || !d.Allowed {
				s.Errorf("Confirm: %+v, %v", d, err)
			}
			s.wantSale(purchase, 4, 0, 1)
		})
	}

	s.sub("after the answer has begun there is nothing to take", afterTheAnswerHasBegunThereIsNothingToTake)

	s.sub("and is cancelled", takenWaitsAndIsCancelled)

	s.sub("from an outer middleware", takenWaitsFromAnOuterMiddleware)
}

func afterTheAnswerHasBegunThereIsNothingToTake(s *scene) {
	purchase := s.sale("sale", seckill.Sale{Stock: 5})
	app := s.framework.Build(onThings(streamed(func() {}), claim(purchase)))
	late := s.framework.Build(onThings(func(c Context) {
		begin(c)
		if d, found := c.Take("sale"); found {
			s.Errorf("taken: %+v", d)
		}
	}, claim(purchase)))
	s.wantPosts(app, thing, nil, 200)
	s.wantPosts(late, thing, []string{"X-User: bob"}, 200)
	s.wantSale(purchase, 3, 0, 2)
}

func takenWaitsAndIsCancelled(s *scene) {
	purchase := s.sale("sale", seckill.Sale{Stock: 5})
	votes := votes.New(s.gate, "vote", votes.Options{})
	var taken core.Decision
	handler := takes(s, reply(500, "no"), &taken)
	s.wantPosts(s.framework.Build(onThings(handler, vote(votes), claim(purchase))), thing, nil, 500)
	s.wantSale(purchase, 4, 1, 0)
	s.wantTally(votes, nil) // what was not taken is settled as ever
	if err := purchase.Settle(s.Context(), taken, core.Rollback); err != nil {
		s.Error(err)
	}
	s.wantSale(purchase, 5, 0, 0)
}

func takenWaitsFromAnOuterMiddleware(s *scene) {
	purchase := seckill.New(s.gate, "sale", seckill.Options{})
	if _, err := purchase.Open(s.Context(), "all", seckill.Sale{Stock: 5}); err != nil {
		s.Fatal(err)
	}
	rule := claim(purchase)
	rule.What = keyfuncs.Const("all")
	var taken core.Decision
	app := onThings(takes(s, ok, &taken), rate(limit.NewSlidingWindow(s.gate, "limit", limit.PerHour(5))))
	app.Use = [][]pipeline.Rule{{rule}}
	s.wantPosts(s.framework.Build(app), thing, nil, 200)
	if status, err := purchase.Status(s.Context(), "all"); err != nil || status.Held != 1 {
		s.Errorf("%+v, %v, want one unit held", status, err)
	}
}

// takes is a handler that takes the reservation and goes on with next.
func takes(s *scene, next func(Context), taken *core.Decision) func(Context) {
	return func(c Context) {
		text := panicked(func() { c.Take("unheard-of") })
		if !strings.Contains(text, `Take("unheard-of")`) || !strings.Contains(text, `"sale"`) {
			s.Errorf("a guard that is not there: panic %q", text)
		}
		var found bool
		if *taken, found = c.Take("sale"); !found || seckill.StateOf(*taken) != seckill.StateHeld {
			s.Errorf("Take: %+v, %t", *taken, found)
		}
		if again, found := c.Take("sale"); !found || again.Attempt != taken.Attempt {
			s.Errorf("Take, once more: %+v, %t", again, found)
		}
		if d, found := c.Decision("sale"); !found || d.Attempt != taken.Attempt {
			s.Errorf("Decision after Take: %+v, %t", d, found)
		}
		next(c)
	}
}
