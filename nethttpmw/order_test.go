package nethttpmw_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
)

// teamOf is a function of an application.
func teamOf(r *keyfuncs.Request) (string, error) { return r.Header.Get("Team"), nil }

// TestALimitInFrontOfANarrowerOneIsTold: in the order organisation, user, one user's burst had others refused.
func TestALimitInFrontOfANarrowerOneIsTold(t *testing.T) {
	log := logHere(t)
	gate := core.NewMemory(core.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	n := 0
	rule := func(who keyfuncs.Func, under ...keyfuncs.Func) nethttpmw.Rule {
		n++
		return nethttpmw.Rule{Guard: limit.NewSlidingWindow(gate, fmt.Sprint("limit", n), limit.PerHour(9)),
			Who: keyfuncs.Join(append(under, who)...)}
	}
	org, uid, ip := keyfuncs.User("org"), keyfuncs.User("uid"), keyfuncs.IP()
	named := func(name string) keyfuncs.Func {
		return func(r *keyfuncs.Request) (string, error) { return r.Header.Get(name), nil }
	}
	for what, c := range map[string]struct {
		rules []nethttpmw.Rule
		lines int
	}{
		"organisation, user":              {[]nethttpmw.Rule{rule(org), rule(uid, org)}, 1},
		"user, organisation":              {[]nethttpmw.Rule{rule(uid, org), rule(org)}, 0},
		"all, organisation, user":         {[]nethttpmw.Rule{rule(keyfuncs.Const("all")), rule(org), rule(uid, org)}, 3},
		"user, all":                       {[]nethttpmw.Rule{rule(uid), rule(keyfuncs.Const("all"))}, 0},
		"between others":                  {[]nethttpmw.Rule{rule(org), rule(ip), rule(uid, ip, org)}, 2},
		"other keys":                      {[]nethttpmw.Rule{rule(org), rule(uid)}, 0},
		"the same key":                    {[]nethttpmw.Rule{rule(org), rule(org)}, 0},
		"the same key in another order":   {[]nethttpmw.Rule{rule(uid, org), rule(org, uid)}, 0},
		"the application's function":      {[]nethttpmw.Rule{rule(teamOf), rule(uid, teamOf)}, 1},
		"closures that look alike":        {[]nethttpmw.Rule{rule(named("A")), rule(uid, named("B"))}, 0},
		"the narrower key is in the body": {[]nethttpmw.Rule{rule(ip), rule(keyfuncs.Form("login"), ip)}, 0},
	} {
		log.Reset()
		nethttpmw.NewPipeline(c.rules...)
		if lines := strings.Count(log.String(), "GH012"); lines != c.lines {
			t.Errorf("%s: %d lines, want %d: %s", what, lines, c.lines, log)
		}
	}
}
