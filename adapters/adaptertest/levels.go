package adaptertest

import (
	"net/http"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core/budget"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// levelsAreToldApart: a guard with levels gets the whole path, without a level where nothing is found of it;
// clients see the figures of each level, and which one has refused.
func levelsAreToldApart(s *scene) {
	find := func(path []string) ([]budget.Limit, error) {
		switch {
		case path[0] == "stranger":
			return nil, budget.ErrUnknown
		case len(path) == 1:
			return []budget.Limit{{Max: 9, Window: time.Hour}, {Max: 20, Window: 24 * time.Hour}}, nil
		}
		return []budget.Limit{{Max: []int64{3, 2}[len(path)-2], Window: time.Hour}}, nil
	}
	calls := budget.New(s.gate, "calls", budget.Options{Levels: []string{"org", "team", "user"}, Find: find})
	header := keyfuncs.Header
	app := s.framework.Build(onThings(ok, pipeline.Rule{Guard: calls, Who: keyfuncs.User(UserKey),
		Under: []keyfuncs.Func{header("X-Org"), header("X-Team")}}))

	post := func(status int, limits string, headers ...string) string {
		s.Helper()
		w := send(app, request(http.MethodPost, thing, headers...))
		var told []string
		for item := range strings.SplitSeq(w.Header().Get("RateLimit"), ", ") {
			name, rest, _ := strings.Cut(item, ";r=")
			r, _, _ := strings.Cut(rest, ";t=")
			told = append(told, strings.Trim(name, `"`)+"="+r)
		}
		if got := strings.Join(told, " "); w.Code != status || limits != "" && got != limits {
			s.Errorf("%q: %d, %s; want %d, %s: %s", headers, w.Code, got, status, limits, w.Body)
		}
		return w.Body.String()
	}
	ann := []string{"X-User: ann", "X-Org: acme", "X-Team: dev"}
	post(200, "calls/org/1h=8 calls/org/24h=19 calls/team=2 calls/user=1", ann...)
	post(200, "calls/org/1h=7 calls/org/24h=18 calls/team=1 calls/user=0", ann...)
	body := post(429, "calls/org/1h=7 calls/org/24h=18 calls/team=1 calls/user=0", ann...)
	if !strings.Contains(body, `"violated-policies":["calls/user"]`) {
		s.Error(body)
	}
	post(200, "calls/org/1h=6 calls/org/24h=17 calls/user=1", "X-User: ann", "X-Org: acme") // in no team
	post(200, "calls/org/1h=8 calls/org/24h=19 calls/team=2 calls/user=1", "X-User: ann", "X-Org: b|c",
		"X-Team: dev")
	if body := post(400, "", "X-User: ann", "X-Team: dev"); !strings.Contains(body, "no_key") {
		s.Error(body)
	}
	if body := post(403, "", "X-User: ann", "X-Org: stranger"); !strings.Contains(body, `"reason":"unknown"`) {
		s.Error(body)
	}
}
