package adaptertest

import (
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

func TestARuleSaysWhichFiguresAreSent(t *testing.T) { onMini(t, headersAsTheRuleSays) }

func headersAsTheRuleSays(s *scene) {
	const policy, limits = `"limit";q=3;w=60`, `"limit";r=2;t=60`
	tenant := keyfuncs.Header("X-Tenant")
	for _, c := range []struct {
		name             string
		headers          answers.Headers
		policies, limits []string
		legacy           bool
	}{
		{"the standard", answers.Headers{}, []string{policy}, []string{limits}, false},
		{"hidden", answers.Headers{Hide: true}, nil, nil, false},
		{"legacy", answers.Headers{Legacy: true}, []string{policy}, []string{limits}, true},
		{
			"a unit", answers.Headers{Unit: "content-bytes"},
			[]string{`"limit";q=3;qu="content-bytes";w=60`}, []string{limits}, false,
		},
		{
			"a partition key", answers.Headers{PartitionKey: tenant},
			[]string{policy + ";pk=:YWNtZQ==:"}, []string{limits + ";pk=:YWNtZQ==:"}, false,
		},
		{"no partition key found", answers.Headers{PartitionKey: keyfuncs.Header("X-Nothing")}, []string{policy},
			[]string{limits}, false},
	} {
		s.sub(c.name, func(s *scene) {
			s.clock(noon)
			rule := rate(limit.NewSlidingWindow(s.gate, "limit", limit.PerMinute(3)))
			rule.Headers = c.headers
			app := s.framework.Build(onThings(ok, rule))
			begun := time.Now().Unix()
			header := send(app, request(http.MethodPost, thing, "X-Tenant: acme")).Result().Header
			s.wantFigures(header, c.policies, c.limits)
			s.wantLegacy(header, c.legacy, 3, 2, begun+60)

			s.wantPosts(app, thing, nil, 200, 200)
			header = send(app, request(http.MethodPost, thing, "X-Tenant: acme")).Result().Header
			s.wantLegacy(header, c.legacy, 3, 0, begun+60)
			if header.Get("Retry-After") != "60" {
				s.Errorf("Retry-After %q", header.Get("Retry-After"))
			}
		})
	}

	s.sub("legacy fields have room for the one with the least left", legacyFieldsHaveRoomForOne)

	s.sub("or for the one that refuses", headersAsTheRuleSaysOrForTheOneThatRefuses)
}

func legacyFieldsHaveRoomForOne(s *scene) {
	s.clock(noon)
	rule := func(name string, most int64, window time.Duration) pipeline.Rule {
		rule := rate(limit.NewSlidingWindow(s.gate, name, limit.Per(most, window)))
		rule.Headers.Legacy = true
		return rule
	}
	app := onThings(ok, rule("route", 9, time.Hour), rule("route2", 4, time.Minute))
	app.Use = [][]pipeline.Rule{{rule("outer", 6, time.Second)}, {rule("inner", 3, 2*time.Minute)}}
	handler := s.framework.Build(app)
	begun := time.Now().Unix()
	for _, remaining := range []int64{2, 1, 0, 0} {
		s.wantLegacy(send(handler, request(http.MethodPost, thing)).Result().Header, true, 3, remaining, begun+120)
	}
}

func headersAsTheRuleSaysOrForTheOneThatRefuses(s *scene) {
	s.clock(noon)
	outer, costly := rate(limit.NewSlidingWindow(s.gate, "outer", limit.PerHour(2))),
		limitOf(limit.PerMinute(4))(s)
	outer.Headers.Legacy, costly.Headers.Legacy = true, true
	app := onThings(ok, costly)
	app.Use = [][]pipeline.Rule{{outer}}
	handler := s.framework.Build(app)
	begun := time.Now().Unix()
	s.wantPosts(handler, thing, []string{"X-Cost: 3"}, 200)
	header := send(handler, request(http.MethodPost, thing, "X-Cost: 2")).Result().Header
	s.wantLegacy(header, true, 4, 1, begun+60) // the outer one has less left
}

// wantLegacy wants the older fields to say this, or not to be there.
func (s *scene) wantLegacy(header http.Header, there bool, most, remaining, reset int64) {
	s.Helper()
	names := []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}
	for i, want := range []int64{most, remaining, reset} {
		values := header.Values(names[i])
		if !there {
			if values != nil {
				s.Errorf("%s: %q", names[i], values)
			}
			continue
		}
		got, err := strconv.ParseInt(header.Get(names[i]), 10, 64)
		late := int64(0)
		if i == 2 {
			late = 30 // a slow machine's clock goes on
		}
		if err != nil || len(values) != 1 || got < want || got > want+late {
			s.Errorf("%s: %q, want %d", names[i], values, want)
		}
	}
}

// almostAnHour matches the rest of an hour after some seconds of a slow machine.
var almostAnHour = regexp.MustCompile(`t=35[789]\d`)

func TestLimitsThatDecideInsideTheProcessHaveFigures(t *testing.T) { onMini(t, localFigures) }

// localFigures plays limits that do not ask Redis: one whose Redis is down, one that never had a Redis, and
// one that remembers.
func localFigures(s *scene) {
	want := func(policies, limits string, rule pipeline.Rule) {
		app := s.framework.Build(onThings(ok, rule))
		for _, status := range []int{200, 429, 429} {
			w := send(app, request(http.MethodPost, thing))
			if w.Code != status {
				s.Errorf("%s: %d %s, want %d", policies, w.Code, w.Body, status)
			}
			header := w.Result().Header
			for i, value := range header.Values("RateLimit") {
				header["Ratelimit"][i] = almostAnHour.ReplaceAllString(value, "t=3600")
			}
			s.wantFigures(header, []string{policies}, []string{limits})
		}
	}
	want(`"down";q=1;w=3600`, `"down";r=0;t=3600`,
		rate(limit.NewSlidingWindow(s.down(), "down", limit.PerHour(1))))
	want(`"memory";q=1;w=3600`, `"memory";r=0;t=3600`,
		rate(limit.NewTokenBucket(core.NewMemory(), "memory", limit.PerHour(1))))
	want(`"told/1h";q=1;w=3600, "told/24h";q=9;w=86400`, `"told/1h";r=0;t=3600`,
		rate(limit.NewSlidingWindow(s.gate, "told", limit.PerHour(1), limit.PerDay(9))))

	failing := &stub{name: "own", traits: core.Traits{Unit: kit.UnitRequests},
		check: func(a core.Attempt) (core.Decision, error) {
			return core.Decision{Attempt: a, Limit: 5, Remaining: 4, Window: time.Hour}, errors.New("no answer")
		}}
	header := send(s.framework.Build(onThings(ok, claim(failing))),
		request(http.MethodPost, thing)).Result().Header
	s.wantFigures(header, nil, nil) // nothing was decided
}
