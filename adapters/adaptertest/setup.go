package adaptertest

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/idempotency"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

func setUpMistakesPanic(s *scene) {
	who := keyfuncs.IP()
	var (
		site    = pipeline.Rule{Guard: limit.NewSlidingWindow(s.gate, "site", limit.PerMinute(1)), Who: who}
		ballots = pipeline.Rule{Guard: votes.New(s.gate, "vote", votes.Options{}), Who: who}
		sales   = pipeline.Rule{Guard: seckill.New(s.gate, "sale", seckill.Options{}), Who: who}
		once    = pipeline.Rule{Guard: idempotency.New(s.gate, "once", idempotency.Options{}), Who: who}
		quota   = pipeline.Rule{Guard: s.quota(1, oneEra), Who: who}
	)
	local := claim(votes.New(s.gate, "poll", votes.Options{}))
	local.OnOutage = core.FailLocal
	secret := site
	secret.Headers = answers.Headers{Hide: true, Legacy: true}
	judged, empty, strange := site, site, site
	judged.Failed, judged.Counted = func(int) bool { return false }, []int{http.StatusUnauthorized}
	empty.Counted, strange.Counted = []int{}, []int{http.StatusUnauthorized, 4010}
	for _, c := range []struct {
		name  string
		rules []pipeline.Rule
		says  []string // what the text has in it: where the mistake is, and what to do
	}{
		{"no rules", nil, []string{"without rules", "add a rule"}},
		{"no guard", []pipeline.Rule{site, {Who: who}}, []string{"rule 2", "no Guard", "limit.NewSlidingWindow"}},
		{"nobody to count", []pipeline.Rule{{Guard: site.Guard}},
			[]string{"rule 1", `"site"`, "no Who", "keyfuncs.IP()"}},
		{"no poll", []pipeline.Rule{site, ballots}, []string{"rule 2", `"vote"`, "no What", "keyfuncs.Param"}},
		{"no item on sale", []pipeline.Rule{sales}, []string{"rule 1", `"sale"`, "no What", "keyfuncs.Param"}},
		{"no different thing", []pipeline.Rule{quota},
			[]string{"rule 1", `"quota"`, "no Which", "keyfuncs.Param"}},
		{"no operation ID", []pipeline.Rule{once},
			[]string{"rule 1", `"once"`, "no ID", "keyfuncs.IdempotencyKey()"}},
		{"a guard that cannot decide inside the process", []pipeline.Rule{local},
			[]string{"rule 1", `"poll"`, "core.FailLocal", "core.FailClosed"}},
		{"figures both hidden and shown", []pipeline.Rule{secret},
			[]string{"rule 1", `"site"`, "Hide", "Legacy", "contradict each other"}},
		{"two words on who counts", []pipeline.Rule{judged},
			[]string{"rule 1", `"site"`, "Failed", "Counted", "set one of them"}},
		{"no status counts", []pipeline.Rule{empty}, []string{"rule 1", `"site"`, "empty Counted", "leave it out"}},
		{"no status", []pipeline.Rule{strange}, []string{"rule 1", `"site"`, "4010", "http.StatusUnauthorized"}},
		{"a guard twice", []pipeline.Rule{site, site}, []string{`"site"`, "two rules", "second guard"}},
	} {
		text := panicked(func() { s.framework.Mount(c.rules...) })
		for _, want := range append(c.says, "gatehouse: ") {
			if !strings.Contains(text, want) {
				s.Errorf("%s: panic %q, want %q in it", c.name, text, want)
			}
		}
	}
	if text := panicked(func() { s.framework.Mount(site) }); text != "" {
		s.Errorf("a rule that can work: panic %q", text)
	}
}

// oneLinePerAddress: the adapter's PerIP counts addresses, and believes headers of named proxies only. An
// adapter may leave it out.
func oneLinePerAddress(s *scene) {
	if s.framework.PerIP == nil {
		return
	}
	ask := func(app http.Handler, peer, forwarded string, want int) {
		s.Helper()
		r := request(http.MethodGet, "/")
		r.RemoteAddr = peer + ":4711"
		if forwarded != "" {
			r.Header.Set("X-Forwarded-For", forwarded)
			r.Header.Set("X-Real-Ip", forwarded)
		}
		if w := send(app, r); w.Code != want {
			s.Errorf("%s for %q: %d %s, want %d", peer, forwarded, w.Code, w.Body, want)
		}
	}
	gate := core.NewMemory()
	direct := s.framework.PerIP(gate, limit.PerHour(2))
	ask(direct, "203.0.113.7", "", 200)
	ask(direct, "203.0.113.7", "198.51.100.1", 200) // a forged header is no other client
	ask(direct, "203.0.113.7", "198.51.100.2", 429)
	ask(direct, "203.0.113.8", "203.0.113.7", 200)

	behind := s.framework.PerIP(core.NewMemory(), limit.PerHour(1), keyfuncs.TrustProxies("10.0.0.0/8"))
	ask(behind, "10.0.0.1", "198.51.100.66, 203.0.113.7", 200)
	ask(behind, "10.0.0.2", "198.51.100.67, 203.0.113.7", 429)
	ask(behind, "10.0.0.1", "203.0.113.8", 200)
	ask(behind, "203.0.113.9", "203.0.113.8", 200)

	twice := panicked(func() { s.framework.PerIP(gate, limit.PerHour(1)) })
	for _, want := range []string{`"per-ip"`, "use one guard in both places", `limit.NewSlidingWindow(gate, "login"`} {
		if !strings.Contains(twice, want) {
			s.Errorf("PerIP twice panics with %q, want %q in it", twice, want)
		}
	}
}

// panicked returns what f panics with.
func panicked(f func()) (text string) {
	defer func() {
		if value := recover(); value != nil {
			text = fmt.Sprint(value)
		}
	}()
	f()
	return ""
}
