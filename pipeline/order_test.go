package pipeline_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// teamOf is a function of an application.
func teamOf(r *keyfuncs.Request) (string, error) { return r.Header.Get("Team"), nil }

// TestALimitInFrontOfANarrowerOneIsTold: in the order organisation, user, one user's burst had others refused.
func TestALimitInFrontOfANarrowerOneIsTold(t *testing.T) {
	log := logHere(t)
	gate := core.NewMemory(core.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	n := 0
	rule := func(who keyfuncs.Func, under ...keyfuncs.Func) pipeline.Rule {
		n++
		return pipeline.Rule{Guard: limit.NewSlidingWindow(gate, fmt.Sprint("limit", n), limit.PerHour(9)),
			Who: keyfuncs.Join(append(under, who)...)}
	}
	org, uid, ip := keyfuncs.User("org"), keyfuncs.User("uid"), keyfuncs.IP()
	named := func(name string) keyfuncs.Func {
		return func(r *keyfuncs.Request) (string, error) { return r.Header.Get(name), nil }
	}
	for what, c := range map[string]struct {
		rules []pipeline.Rule
		lines int
	}{
		"organisation, user":              {[]pipeline.Rule{rule(org), rule(uid, org)}, 1},
		"user, organisation":              {[]pipeline.Rule{rule(uid, org), rule(org)}, 0},
		"all, organisation, user":         {[]pipeline.Rule{rule(keyfuncs.Const("all")), rule(org), rule(uid, org)}, 3},
		"user, all":                       {[]pipeline.Rule{rule(uid), rule(keyfuncs.Const("all"))}, 0},
		"between others":                  {[]pipeline.Rule{rule(org), rule(ip), rule(uid, ip, org)}, 2},
		"other keys":                      {[]pipeline.Rule{rule(org), rule(uid)}, 0},
		"the same key":                    {[]pipeline.Rule{rule(org), rule(org)}, 0},
		"the same key in another order":   {[]pipeline.Rule{rule(uid, org), rule(org, uid)}, 0},
		"the application's function":      {[]pipeline.Rule{rule(teamOf), rule(uid, teamOf)}, 1},
		"closures that look alike":        {[]pipeline.Rule{rule(named("A")), rule(uid, named("B"))}, 0},
		"the narrower key is in the body": {[]pipeline.Rule{rule(ip), rule(keyfuncs.Form("login"), ip)}, 0},
	} {
		log.Reset()
		pipeline.New(c.rules...)
		if lines := strings.Count(log.String(), "GH012"); lines != c.lines {
			t.Errorf("%s: %d lines, want %d: %s", what, lines, c.lines, log)
		}
	}
}
