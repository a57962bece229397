package pipeline_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/budget"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// leveled is a guard with levels that notes its actors, and refuses those of organisations named "bad".
type leveled struct {
	fake
	mu     sync.Mutex
	actors []string
}

func (g *leveled) Check(_ context.Context, a core.Attempt) (core.Decision, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.actors = append(g.actors, a.Actor)
	d := core.Decision{Guard: g.name, Attempt: a, Allowed: !strings.HasPrefix(a.Actor, "bad|")}
	if d.Reason = core.ReasonOK; !d.Allowed {
		d.Reason = core.ReasonLimited
	}
	return d, nil
}

func newLeveled(levels int) *leveled {
	return &leveled{fake: fake{name: "own", traits: core.Traits{Levels: levels, KeepsOnFailure: true}}}
}

var (
	orgHeader  = keyfuncs.Header("X-Org")
	teamHeader = keyfuncs.Header("X-Team")
)

// answered sends a request with header fields, "name: value", and returns its status.
func answered(app http.Handler, headers ...string) int {
	r, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
	}
	app.ServeHTTP(w, r)
	return w.Code
}

func nothing(http.ResponseWriter, *http.Request) {}

// TestUnderFitsTheLevelsOfTheGuard: a rule whose Under does not fit is found when it is mounted.
func TestUnderFitsTheLevelsOfTheGuard(t *testing.T) {
	for remedy, rule := range map[string]pipeline.Rule{
		"has 0 functions in Under, and its guard 3 levels": {Guard: newLeveled(3), Who: keyfuncs.IP()},
		"has 1 functions in Under, and its guard 3 levels": {Guard: newLeveled(3), Who: keyfuncs.IP(),
			Under: []keyfuncs.Func{orgHeader}},
		"has 1 functions in Under, and its guard 0 levels": {Guard: newLeveled(0), Who: keyfuncs.IP(),
			Under: []keyfuncs.Func{orgHeader}},
		"has nil as function 2 of Under": {Guard: newLeveled(3), Who: keyfuncs.IP(),
			Under: []keyfuncs.Func{orgHeader, nil}},
	} {
		guardtest.WantPanic(t, remedy, func() { pipeline.New(rule) })
	}
	pipeline.New(pipeline.Rule{Guard: newLeveled(1), Who: keyfuncs.IP()})
}

// TestTheActorIsAPath: what is found of the levels, what is not, and what is malformed; and the rule is the one
// that was mounted, whatever happens to its slice.
//
// Promise (Budget): Bans and roll-outs are of the whole path. A request without its organisation gets 400.
func TestTheActorIsAPath(t *testing.T) {
	for _, noKey := range []pipeline.NoKey{pipeline.NoKeyRefuse, pipeline.NoKeySkip} {
		g, under := newLeveled(3), []keyfuncs.Func{orgHeader, func(r *keyfuncs.Request) (string, error) {
			if r.Header.Get("X-Team") == "?" {
				return "", keyfuncs.ErrMalformed
			}
			return teamHeader(r)
		}}
		app := nethttpmw.HTTP(pipeline.Rule{Guard: g, Who: keyfuncs.Header("X-User"), Under: under,
			NoKey: noKey})(http.HandlerFunc(nothing))
		under[0], under[1] = nil, nil
		nobody := map[pipeline.NoKey]int{pipeline.NoKeyRefuse: 400, pipeline.NoKeySkip: 200}[noKey]
		for _, c := range []struct {
			status  int
			actor   string
			headers []string
		}{
			{200, "a|b|ann", []string{"X-Org: a", "X-Team: b", "X-User: ann"}},
			{200, "a||ann", []string{"X-Org: a", "X-User: ann"}},
			{200, `a\|b||a\\nn`, []string{"X-Org: a|b", `X-User: a\nn`}},
			{429, "bad|b|ann", []string{"X-Org: bad", "X-Team: b", "X-User: ann"}},
			{400, "", []string{"X-Team: b", "X-User: ann"}}, // evades nothing, also where a missing user does
			{400, "", []string{"X-Org: a", "X-Team: ?", "X-User: ann"}},
			{nobody, "", []string{"X-Org: a", "X-Team: b"}},
		} {
			g.actors = nil
			if status := answered(app, c.headers...); status != c.status || strings.Join(g.actors, " ") != c.actor {
				t.Errorf("%q: %d, %q; want %d, %q", c.headers, status, g.actors, c.status, c.actor)
			}
		}
	}
}

// TestPathsAreJoinedTexts: programs that call a budget by hand, and rules, mean the same by a path.
func TestPathsAreJoinedTexts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		path := rapid.SliceOfN(rapid.StringOf(rapid.RuneFrom([]rune(`ab|\{}`+"\x00ä"))), 1, 8).Draw(rt, "path")
		if a, b := budget.Path(path...), keyfuncs.JoinTexts(path...); a != b {
			rt.Errorf("%q and %q of %q", a, b, path)
		}
	})
}

// TestNamesakesOfOrganisationsAreApart: bans and roll-outs are of the whole path.
func TestNamesakesOfOrganisationsAreApart(t *testing.T) {
	b := redistest.Mini(t)
	gate := guardtest.NewEngine(b)
	app := nethttpmw.HTTP(pipeline.Rule{Guard: newLeveled(2), Who: keyfuncs.Header("X-User"),
		Under: []keyfuncs.Func{orgHeader},
		Bans:  bans.New(gate, "bans", bans.Options{Refusals: 2, Period: time.Hour, First: time.Hour}),
	})(http.HandlerFunc(nothing))
	for range 3 {
		answered(app, "X-Org: bad", "X-User: ann")
	}
	if status := answered(app, "X-Org: good", "X-User: ann"); status != 200 {
		t.Errorf("ann of another organisation got %d", status)
	}

	half := new(pipeline.Rollout)
	if err := half.Set(50, 50); err != nil {
		t.Fatal(err)
	}
	g := newLeveled(2)
	app = nethttpmw.HTTP(pipeline.Rule{Guard: g, Who: keyfuncs.Header("X-User"), Rollout: half,
		Under: []keyfuncs.Func{orgHeader}})(http.HandlerFunc(nothing))
	for i := range 200 {
		answered(app, fmt.Sprintf("X-Org: o%d", i), "X-User: ann")
	}
	if n := len(g.actors); n < 60 || n > 140 {
		t.Errorf("the rule was asked about %d of 200 organisations' ann, want half", n)
	}
}
