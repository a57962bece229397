package adaptertest

import (
	"errors"
	"net/http"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

func TestAnEstimateIsCorrectedByTheCost(t *testing.T) { onRedis(t, costsAreSettled) }

// costsAreSettled: requests that cost less than expected leave room for others, and those that cost more make
// others wait. The header has the figures of the estimate.
func costsAreSettled(s *scene) {
	g := limit.NewSlidingWindow(s.gate, "tokens", limit.PerHour(100))
	calls := limit.NewTokenBucket(s.gate, "calls", limit.PerHour(100))
	rules := []pipeline.Rule{tokens(g), tokens(calls)}
	both := func(n int64) func(Context) {
		return spends(s, func(c Context) {
			if err := c.Spend("calls", n); err != nil {
				s.Errorf("Spend: %v", err)
			}
			ok(c)
		}, n-1, 1)
	}
	cheap := s.framework.Build(onThings(both(1), rules...))
	s.wantPosts(cheap, thing, nil, times(20, 200)...)
	s.wantLeft(g, 80)

	dear := s.framework.Build(onThings(both(200), rules...))
	w := send(dear, request(http.MethodPost, thing))
	if w.Code != http.StatusOK {
		s.Errorf("%d %s", w.Code, w.Body)
	}
	if left := w.Header().Values("RateLimit"); len(left) != 1 || left[0][:13] != `"tokens";r=70` {
		s.Errorf("RateLimit %q: want the estimate's", left)
	}
	s.wantLeft(g, 0)
	s.wantPosts(cheap, thing, nil, 429, 429)
	if d, err := calls.Peek(s.Context(), core.Attempt{Actor: "ann"}); err != nil || d.Allowed ||
		d.RetryAfter.Minutes() < 60 {
		s.Errorf("%+v, %v: want the bucket to owe more than 100 units", d, err)
	}
}

func TestImpossibleCostsAreErrors(t *testing.T) { onMini(t, costsThatCannotBe) }

// costsThatCannotBe are errors, and add nothing.
func costsThatCannotBe(s *scene) {
	g := limit.NewSlidingWindow(s.gate, "tokens", limit.PerHour(100))
	ballots := votes.New(s.gate, "vote", votes.Options{})
	app := s.framework.Build(onThings(func(c Context) {
		if err := c.Spend("tokens", -1); !errors.Is(err, core.ErrInvalid) {
			s.Errorf("a negative cost: %v", err)
		}
		if err := c.Spend("vote", 1); !errors.Is(err, core.ErrInvalid) {
			s.Errorf("a vote: %v", err)
		}
		if text := panicked(func() { _ = c.Spend("token", 1) }); text == "" {
			s.Error("a name that no rule has: no panic")
		}
		ok(c)
	}, tokens(g), vote(ballots)))
	s.wantPosts(app, thing, nil, 200)
	s.wantLeft(g, 90)
}
