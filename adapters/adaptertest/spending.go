package adaptertest

import (
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// tokens is a rule that counts ann's tokens, of which it expects a request to cost ten.
func tokens(g core.Guard) pipeline.Rule {
	return pipeline.Rule{Guard: g, Who: keyfuncs.Const("ann"),
		Cost: func(*keyfuncs.Request) (int64, error) { return 10, nil }}
}

// spends is a handler that says twice what the request has cost, and goes on with next.
func spends(s *scene, next func(Context), first, second int64) func(Context) {
	return func(c Context) {
		for _, n := range []int64{first, second} {
			if err := c.Spend("tokens", n); err != nil {
				s.Errorf("Spend(%d): %v", n, err)
			}
		}
		next(c)
	}
}

// wantLeft wants ann to have this many units left.
func (s *scene) wantLeft(g *limit.SlidingWindow, want int64) {
	s.Helper()
	if d, err := g.Peek(s.Context(), core.Attempt{Actor: "ann"}); err != nil || d.Remaining != want {
		s.Errorf("%d left, %v: want %d", d.Remaining, err, want)
	}
}

// spentStaysSpent: whatever the end of a request, its rule is told once what it has cost.
func spentStaysSpent(s *scene) {
	for i, e := range endings {
		if !runs(i + 1) {
			continue
		}
		s.sub(e.name, func(s *scene) {
			all := limit.NewSlidingWindow(s.gate, "tokens", limit.PerHour(100))
			successes := limit.NewSlidingWindow(s.gate, "successes", limit.PerHour(100))
			failing := tokens(successes)
			failing.Failed = func(status int) bool { return status >= 400 }
			e.handler = spends(s, e.handler, 3, 4)
			e.play(s, tokens(all), failing)
			s.wantLeft(all, 93)
			want := int64(90)
			if e.failed() {
				want = 100
			}
			s.wantLeft(successes, want) // it was told of no cost, so the estimate stands
		})
	}

	s.sub("a request that has failed gives back only the rest", func(s *scene) {
		g := limit.NewSlidingWindow(s.gate, "tokens", limit.PerHour(100))
		rule := tokens(g)
		rule.Failed = func(status int) bool { return status >= 400 }
		app := s.framework.Build(onThings(spends(s, reply(500, "no"), 3, 4), rule))
		s.wantPosts(app, thing, nil, 500)
		s.wantLeft(g, 93)
	})
}
