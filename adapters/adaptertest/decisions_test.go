package adaptertest

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

func TestAKnownItemOfAQuotaIsFree(t *testing.T) { onRedis(t, knownItemsAreFree) }

// knownItemsAreFree plays a reader who reads some articles more than once. The handler gives points for new
// ones.
func knownItemsAreFree(s *scene) {
	quota := s.quota(2, oneEra)
	reasons := &diary{}
	status := http.StatusOK
	app := s.framework.Build(onThings(func(c Context) {
		d, _ := c.Decision("quota")
		reasons.note(fmt.Sprintf("%s, %d left", d.Reason, d.Remaining))
		c.Reply(status, "")
	}, vote(quota)))
	red, blue, green := []string{"X-Choice: red"}, []string{"X-Choice: blue"}, []string{"X-Choice: green"}

	s.wantPosts(app, thing, red, 200, 200)
	status = http.StatusInternalServerError
	s.wantPosts(app, thing, blue, 500) // gives its item back
	s.wantPosts(app, thing, red, 500)  // which counts for the requests before
	s.wantUsed(quota, "red")
	status = http.StatusOK
	s.wantPosts(app, thing, blue, 200)
	s.wantPosts(app, thing, green, 429)
	s.wantPosts(app, thing, red, 200)
	s.wantPosts(app, thing, append(green, "X-User: bob"), 200)
	reasons.want(s, "ok, 1 left", "again, 1 left", "ok, 0 left", "again, 1 left", "ok, 0 left", "again, 0 left",
		"ok, 1 left")
	s.wantUsed(quota, "blue", "red")
}

func TestAVoteIsChangedWhereThePollAllowsIt(t *testing.T) { onRedis(t, votesAreChanged) }

// votesAreChanged plays a voter who changes their vote, once with a request that fails.
func votesAreChanged(s *scene) {
	ballots := votes.New(s.gate, "vote", votes.Options{Poll: votes.Poll{Change: true}, Audit: true})
	reasons := &diary{}
	status := http.StatusOK
	rule := vote(ballots)
	rule.Origin = keyfuncs.Header("X-Device")
	app := s.framework.Build(onThings(func(c Context) {
		d, _ := c.Decision("vote")
		reasons.note(fmt.Sprintf("%s %q from %q", d.Reason, votes.Choices(d), d.Attempt.Origin))
		c.Reply(status, "")
	}, rule))
	s.wantPosts(app, thing, []string{"X-Device: d1"}, 200)
	s.wantTally(ballots, map[string]int64{"red": 1})
	s.wantPosts(app, thing, []string{"X-Choice: blue", "X-Device: d2"}, 200, 409)
	s.wantTally(ballots, map[string]int64{"blue": 1})
	status = http.StatusInternalServerError
	s.wantPosts(app, thing, []string{"X-Choice: green"}, 500) // the former choice is restored
	s.wantTally(ballots, map[string]int64{"blue": 1})
	reasons.want(s, `ok ["red"] from "d1"`, `changed ["blue"] from "d2"`, `changed ["green"] from ""`)

	events, _, err := ballots.Audit(s.Context(), "t1", "", 10)
	if err != nil || len(events) != 4 || events[1].Origin != "d2" || events[3].Kind != votes.EventUndone {
		s.Errorf("%+v, %v", events, err)
	}
}
