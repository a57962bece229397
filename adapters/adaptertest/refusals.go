package adaptertest

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// golden is a refusal that every framework must send, byte by byte.
type golden struct {
	status int
	retry  string // Retry-After, "" when there must be none
	body   string
}

// refusal is a way to be refused.
type refusal struct {
	name   string
	rule   func(s *scene) pipeline.Rule
	before [][]string    // the headers of requests that are let through before
	later  time.Duration // how much time passes after those
	header []string      // the headers of the request that is refused
	want   golden
}

// noon is when the refusals are played.
var noon = time.Date(2030, time.May, 1, 12, 0, 0, 0, time.UTC)

func refusalsAreGolden(s *scene) {
	all := slices.Concat(limitRefusals, voteRefusals, quotaRefusals, saleRefusals, packetRefusals, otherRefusals)
	for name := range figuresOf {
		if !slices.ContainsFunc(all, func(c refusal) bool { return c.name == name }) {
			s.Errorf("there are figures of %q, which is none of the refusals", name)
		}
	}
	for i, c := range all {
		if !runs(i) {
			continue
		}
		s.sub(c.name, func(s *scene) {
			s.clock(noon)
			if c.later%time.Second != 0 { // a memory counts down by a clock that goes on, to another second
				s.gate = newEngine(s.backend.Client, s.backend.Prefix, core.WithRefusalMemory(0))
			}
			rule := c.rule(s)
			app := s.framework.Build(App{Routes: []Route{
				{Method: http.MethodPost, Path: "/things/{thing}", Rules: []pipeline.Rule{rule}, Handler: ok},
				{Method: http.MethodHead, Path: "/things/{thing}", Rules: []pipeline.Rule{rule}, Handler: ok},
			}})
			for _, headers := range c.before {
				s.wantPosts(app, thing, headers, http.StatusOK)
			}
			s.clock(noon.Add(c.later))

			says := figuresOf[c.name]
			c.want.check(s, send(app, request(http.MethodPost, thing, c.header...)), says)
			srv := s.serve(app)
			c.want.checkSent(s, srv.do(s.Context(), http.MethodPost, c.header...), says, c.want.body)
			c.want.checkSent(s, srv.do(s.Context(), http.MethodHead, c.header...), says, "")
		})
	}
}

// check wants the whole answer, in a recorder, to be right.
func (g golden) check(s *scene, w *httptest.ResponseRecorder, says figures) {
	s.Helper()
	g.checkHeader(s, w.Code, w.Result().Header, says)
	if w.Body.String() != g.body {
		s.Errorf("body:\n%s\nwant:\n%s", w.Body, g.body)
	}
	g.checkProblem(s, w.Body.Bytes())
}

// checkSent wants the same of what a client has received.
func (g golden) checkSent(s *scene, answer response, says figures, body string) {
	s.Helper()
	if answer.cut {
		s.Fatal("the connection was cut")
	}
	header := answer.Header.Clone()
	header.Del("Date")       // the server's,
	header.Del("Connection") // not the application's
	g.checkHeader(s, answer.StatusCode, header, says)
	if answer.body != body {
		s.Errorf("sent body:\n%s\nwant:\n%s", answer.body, body)
	}
}

func (g golden) checkHeader(s *scene, status int, header http.Header, says figures) {
	s.Helper()
	want := http.Header{
		"Cache-Control":          {"no-store"},
		"Content-Length":         {strconv.Itoa(len(g.body))},
		"Content-Type":           {"application/problem+json"},
		"Vary":                   {"Accept"},
		"X-Content-Type-Options": {"nosniff"},
	}
	if says.policy != "" {
		want.Set("RateLimit-Policy", says.policy)
	}
	if says.limit != "" {
		want.Set("RateLimit", says.limit)
	}
	if g.retry != "" {
		want.Set("Retry-After", g.retry)
	}
	if status != g.status || !maps.EqualFunc(header, want, slices.Equal[[]string]) {
		s.Errorf("%d %v, want %d %v", status, header, g.status, want)
	}
}

// checkProblem wants the body to follow RFC 9457, and to reveal nothing of what is behind the application.
func (g golden) checkProblem(s *scene, body []byte) {
	s.Helper()
	var problem map[string]any
	if err := json.Unmarshal(body, &problem); err != nil {
		s.Fatalf("%v in %s", err, body)
	}
	for _, member := range []string{"type", "title", "detail", "reason"} {
		if text, ok := problem[member].(string); !ok || text == "" {
			s.Errorf("no %s in %s", member, body)
		}
	}
	if problem["status"] != float64(g.status) {
		s.Errorf("status %v in the body of a %d", problem["status"], g.status)
	}
	for _, cause := range []string{"127.0.0.1", "dial", "connect", "redis", "script", s.backend.Prefix} {
		if strings.Contains(strings.ToLower(string(body)), cause) {
			s.Errorf("%q is nothing for clients: %s", cause, body)
		}
	}
}

// problem returns the body of a refusal; more has the members after the reason.
func problem(status int, reason, title, detail, more string) string {
	const page = "https://github.com/gatehouse-go/gatehouse/blob/main/docs/guides/answers.md#"
	return problemOf(page+reason, title, status, detail, `"reason":"`+reason+`"`+more)
}

// The problem types that draft-ietf-httpapi-ratelimit-headers-11 defines.
const (
	quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	abnormalUsage = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected"
)

// exceeded is the body of a refusal by a policy.
func exceeded(reason, detail, policy, more string) string {
	return problemOf(quotaExceeded, "Quota Exceeded", 429, detail,
		`"reason":"`+reason+`","violated-policies":["`+policy+`"]`+more)
}

func problemOf(uri, title string, status int, detail, more string) string {
	return `{"type":"` + uri + `","title":"` + title + `","status":` + strconv.Itoa(status) +
		`,"detail":"` + detail + `",` + more + "}\n"
}
