package adaptertest

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// wantFigures wants these RateLimit fields, one value per middleware that has figures.
func (s *scene) wantFigures(header http.Header, policies, limits []string) {
	s.Helper()
	if got := header.Values("RateLimit-Policy"); !slices.Equal(got, policies) {
		s.Errorf("RateLimit-Policy: %q, want %q", got, policies)
	}
	if got := header.Values("RateLimit"); !slices.Equal(got, limits) {
		s.Errorf("RateLimit: %q, want %q", got, limits)
	}
}

// everyEndingHasHeaders plays a limit around the application, and on the route one with several limits and a
// vote.
func everyEndingHasHeaders(s *scene) {
	for i, e := range endings {
		if !runs(i) {
			continue
		}
		s.sub(e.name, func(s *scene) {
			s.clock(noon)
			site := rate(limit.NewSlidingWindow(s.gate, "site", limit.PerMinute(9)))
			api := rate(limit.NewSlidingWindow(s.gate, "api", limit.PerSecond(5), limit.PerHour(3),
				limit.Per(4, 1500*time.Millisecond)))
			votes := vote(votes.New(s.gate, "vote", votes.Options{}))
			e.layout = func(handler func(Context), rules ...pipeline.Rule) App {
				app := onThings(handler, rules...)
				app.Use = [][]pipeline.Rule{{site}}
				return app
			}
			_, heard := e.play(s, api, votes)
			switch {
			case heard.Response == nil:
			case e.counts == pipeline.StatusClientGone, e.name == "hijacked":
				s.wantFigures(heard.Header, nil, nil) // a handler outside the rules has answered
			default:
				s.wantFigures(heard.Header,
					[]string{`"site";q=9;w=60`, `"api/1s";q=5;w=1, "api/1h";q=3;w=3600, "api/1500ms";q=4;w=2`},
					[]string{`"site";r=8;t=60`, `"api/1h";r=2;t=3600`})
			}
		})
	}
}

// figuresAddUp plays two middlewares around a route with two rules, until one after the other refuses.
func figuresAddUp(s *scene) {
	// Without a memory of refusals each rule is asked each time, however slow the machine is.
	s.gate = newEngine(s.backend.Client, s.backend.Prefix, core.WithRefusalMemory(0))
	s.clock(noon)
	hour := func(name string, most int64) pipeline.Rule {
		return rate(limit.NewSlidingWindow(s.gate, name, limit.PerHour(most)))
	}
	app := onThings(func(c Context) {
		c.Writer().Header().Add("RateLimit", `"of-the-handler";r=1`)
		ok(c)
	}, hour("route", 2), vote(votes.New(s.gate, "vote",
		votes.Options{Poll: votes.Poll{PerVoter: 9}})), hour("last", 1))
	app.Use = [][]pipeline.Rule{{hour("outer", 4), hour("second", 9)}, {hour("inner", 5)}}
	handler := s.framework.Build(app)

	around := []string{`"outer";q=4;w=3600, "second";q=9;w=3600`, `"inner";q=5;w=3600`}
	all := append(slices.Clone(around), `"route";q=2;w=3600, "last";q=1;w=3600`)
	for i, want := range []struct {
		status   int
		retry    string
		policies []string
		limits   []string
	}{
		{200, "", all, []string{
			`"outer";r=3;t=3600, "second";r=8;t=3600`, `"inner";r=4;t=3600`, `"route";r=1;t=3600, "last";r=0;t=3600`,
			`"of-the-handler";r=1`,
		}},
		// What the route's first rule took is given back, so only the last one says how much is left.
		{429, "3600", all, []string{`"outer";r=2;t=3600, "second";r=7;t=3600`, `"inner";r=3;t=3600`,
			`"last";r=0;t=3600`}},
		{429, "3600", all, []string{`"outer";r=1;t=3600, "second";r=6;t=3600`, `"inner";r=2;t=3600`,
			`"last";r=0;t=3600`}},
		{429, "3600", all, []string{`"outer";r=0;t=3600, "second";r=5;t=3600`, `"inner";r=1;t=3600`,
			`"last";r=0;t=3600`}},
		{429, "3600", []string{`"outer";q=4;w=3600`}, []string{`"outer";r=0;t=3600`}},
	} {
		w := send(handler, request(http.MethodPost, thing, "X-Choice: "+strconv.Itoa(i)))
		header := w.Result().Header
		if w.Code != want.status || header.Get("Retry-After") != want.retry {
			s.Errorf("time %d: %d %s, Retry-After %q, want %d and %q", i+1, w.Code, w.Body, header.Get("Retry-After"),
				want.status, want.retry)
		}
		s.wantFigures(header, want.policies, want.limits)
	}

	s.sub("nobody is told to come back while nothing is left", nobodyIsToldToComeBackWhileNothingIsLeft)

	s.sub("and who is not counted has none", figuresAddUpAndWhoIsNotCountedHasNone)
}

func nobodyIsToldToComeBackWhileNothingIsLeft(s *scene) {
	s.clock(noon)
	app := onThings(ok, rate(limit.NewSlidingWindow(s.gate, "route", limit.PerMinute(1))))
	app.Use = [][]pipeline.Rule{{rate(limit.NewSlidingWindow(s.gate, "outer", limit.PerHour(3)))}}
	handler := s.framework.Build(app)
	for _, retry := range []string{"", "60", "3600", "3600"} {
		header := send(handler, request(http.MethodPost, thing)).Result().Header
		if got := header.Get("Retry-After"); got != retry {
			s.Errorf("Retry-After %q, want %q, with %q", got, retry, header.Values("RateLimit"))
		}
	}
}

func figuresAddUpAndWhoIsNotCountedHasNone(s *scene) {
	skipped, listed := rate(limit.NewSlidingWindow(s.gate, "user", limit.PerHour(3))),
		rate(limit.NewSlidingWindow(s.gate, "listed", limit.PerHour(3)))
	skipped.NoKey = pipeline.NoKeySkip
	listed.Who = keyfuncs.IP()
	listed.Allow = keyfuncs.NewList(keyfuncs.IP(), "192.0.2.0/24")
	w := send(s.framework.Build(onThings(ok, skipped, listed)), request(http.MethodPost, thing, "X-User:"))
	if w.Code != http.StatusOK {
		s.Errorf("%d %s", w.Code, w.Body)
	}
	s.wantFigures(w.Result().Header, nil, nil)
}
