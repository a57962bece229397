package adaptertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// traces are the refusals without a decision that an observer hears of.
type traces struct {
	mu    sync.Mutex
	notes []string
}

func (o *traces) Observe(_ context.Context, e core.Event) {
	if e.Op != "refuse" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if e.Decided() || e.Err != nil || e.Decision.Attempt != (core.Attempt{Shadow: e.Decision.Attempt.Shadow}) {
		o.notes = append(o.notes, fmt.Sprintf("wrong: %+v", e))
	}
	note := fmt.Sprintf("%s %s %s %s", e.Guard, e.Decision.Reason, e.Key, e.Function)
	if e.Decision.Attempt.Shadow {
		note += " in the shadow"
	}
	o.notes = append(o.notes, note)
}

func TestARefusalWithoutADecisionLeavesATrace(t *testing.T) { onMini(t, refusalsLeaveATrace) }

// refusalsLeaveATrace plays requests that get 400 and 403 before a guard has decided.
func refusalsLeaveATrace(s *scene) {
	heard := &traces{}
	gate := core.New(s.backend.Client, core.WithPrefix(s.backend.Prefix), core.WithDeadline(time.Minute),
		core.WithObserver(heard))
	site := rate(limit.NewSlidingWindow(gate, "site", limit.PerHour(100)))
	site.Deny = keyfuncs.NewList(keyfuncs.User(UserKey), "mallory")
	firstOf := rate(limit.NewSlidingWindow(gate, "first", limit.PerHour(100)))
	firstOf.Who = keyfuncs.FirstOf(keyfuncs.Header("X-Api-Key"), keyfuncs.User(UserKey))
	ballot := withCost(vote(votes.New(gate, "vote", votes.Options{Poll: votes.Poll{Choices: []string{"red"}}})))
	shadowed, _ := inShadow(rate(limit.NewSlidingWindow(gate, "try", limit.PerHour(100))))
	for _, c := range []struct {
		name   string
		rule   pipeline.Rule
		header []string
		status int
		trace  string
	}{
		{"nobody", site, []string{"X-User:"}, 400, `site no_key who User("uid")`},
		{"none of several", firstOf, []string{"X-User:"}, 400,
			`first no_key who FirstOf(Header("X-Api-Key"), User("uid"))`},
		{"denied", site, []string{"X-User: mallory"}, 403, "site denied deny "},
		{"no choice", ballot, []string{"X-Choice:"}, 400, `vote no_key which Header("X-Choice")`},
		{"a malformed ID", ballot, []string{`Idempotency-Key: "k1`}, 400, "vote malformed id IdempotencyKey()"},
		{"a cost that is none", ballot, []string{"X-Cost: many"}, 400, "vote invalid cost "},
		{"a choice that is none", ballot, []string{"X-Choice: pink"}, 400, "vote invalid guard "},
		{"in the shadow", shadowed, []string{"X-User:"}, 200, ""}, // such requests are the last to be enforced
		{"allowed", site, nil, 200, ""},
	} {
		s.wantPosts(s.framework.Build(onThings(ok, c.rule)), thing, c.header, c.status)
		var want []string
		if c.trace != "" {
			want = []string{c.trace}
		}
		if !slices.Equal(heard.notes, want) && c.name != "in the shadow" {
			s.Errorf("%s: heard %q, want %q", c.name, heard.notes, want)
		}
		heard.notes = nil
	}
}
