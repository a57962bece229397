package conformance

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
)

// down makes an engine whose Redis is not there.
func (s *scene) down() *core.Engine {
	s.Helper()
	rdb := redis.NewClient(&redis.Options{
		// No port is sure to stay closed while other tests start servers.
		Dialer: func(_ context.Context, network, addr string) (net.Conn, error) {
			return nil, fmt.Errorf("dial %s %s: %w", network, addr, syscall.ECONNREFUSED)
		},
		Addr: "127.0.0.1:6379", MaxRetries: -1, DialerRetries: 1,
	})
	s.Cleanup(func() { _ = rdb.Close() }) // it has no connection
	return newEngine(rdb, s.backend.Prefix)
}

// polls is a VoteOptions.Find: the polls that can not be looked up, and why. All others do not exist.
type polls map[string]error

func (p polls) find(_ context.Context, poll string) (core.Poll, error) {
	if err := p[poll]; err != nil {
		return core.Poll{}, err
	}
	return core.Poll{}, core.ErrNoPoll
}

func outages(s *scene) {
	down := s.down()
	open := core.Traits{Outage: core.OutageOpen}
	for _, c := range []struct {
		name   string
		rule   nethttpmw.Rule
		policy core.Outage
		passes bool
	}{
		{"a limit closes where the rule says so", limit(down.SlidingWindow("limit", core.PerMinute(9))), core.OutageClosed, false},
		{"a limit opens where the rule says so", limit(down.SlidingWindow("limit2", core.PerMinute(9))), core.OutageOpen, true},
		{"a vote closes", vote(down.Votes("vote", core.VoteOptions{})), core.OutageDefault, false},
		{"a vote opens where the rule says so", vote(down.Votes("vote2", core.VoteOptions{})), core.OutageOpen, true},
		{"a sale closes", claim(down.Seckill("sale", core.SeckillOptions{})), core.OutageDefault, false},
		{"a guard opens by its traits", claim(&stub{name: "own", traits: open, check: failing}), core.OutageDefault, true},
		{"a rule overrules the traits", claim(&stub{name: "own", traits: open, check: failing}), core.OutageClosed, false},
		{"a guard of no policy closes", claim(&stub{name: "own", check: failing}), core.OutageDefault, false},
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

	s.sub("a guard decides inside the process where the rule says so", func(s *scene) {
		notes := &diary{}
		guard := &localStub{stub: stub{name: "own", check: failing, diary: notes}, left: 1}
		rule := claim(guard)
		rule.OnOutage = core.OutageLocal
		app := s.framework.Build(onThings(func(c Context) {
			if d, found := c.Decision("own"); !found || d.Attempt.Actor != "ann" {
				s.Errorf("the handler finds %+v, %t", d, found)
			}
			ok(c)
		}, rule))
		s.wantPosts(app, thing, nil, http.StatusOK)
		notes.want(s, "check own", "check own here", "settle own true")
		golden{http.StatusTooManyRequests, "", limitedBy("own")}.check(s, send(app, request(http.MethodPost, thing)), figures{})
		golden{http.StatusServiceUnavailable, "1", undecided}.check(s, send(app, request(http.MethodPost, thing)), figures{})
		notes.want(s, "check own", "check own here", "check own", "check own here")
	})

	s.sub("nonsense is refused by an open rule too", func(s *scene) {
		rule := withCost(limit(s.down().SlidingWindow("limit", core.PerMinute(9))))
		rule.OnOutage = core.OutageOpen
		app := s.framework.Build(onThings(ok, rule))
		golden{http.StatusBadRequest, "", invalid}.check(s, send(app, request(http.MethodPost, thing, "X-Cost: -1")), figures{})
	})
}
