package conformance

import (
	"fmt"
	"strings"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
)

func setUpMistakesPanic(s *scene) {
	who := keyfuncs.IP()
	var (
		site  = nethttpmw.Rule{Guard: s.gate.SlidingWindow("site", core.PerMinute(1)), Who: who}
		votes = nethttpmw.Rule{Guard: s.gate.Votes("vote", core.VoteOptions{}), Who: who}
		sales = nethttpmw.Rule{Guard: s.gate.Seckill("sale", core.SeckillOptions{}), Who: who}
		once  = nethttpmw.Rule{Guard: s.gate.Idempotency("once", core.IdempotencyOptions{}), Who: who}
		quota = nethttpmw.Rule{Guard: s.quota(1, oneEra), Who: who}
	)
	local := claim(s.gate.Votes("poll", core.VoteOptions{}))
	local.OnOutage = core.OutageLocal
	secret := site
	secret.Headers = nethttpmw.Headers{Hide: true, Legacy: true}
	for _, c := range []struct {
		name  string
		rules []nethttpmw.Rule
		says  []string // what the text has in it: where the mistake is, and what to do
	}{
		{"no rules", nil, []string{"without rules", "give it at least one"}},
		{"no guard", []nethttpmw.Rule{site, {Who: who}}, []string{"rule 2", "no Guard", "core.New"}},
		{"nobody to count", []nethttpmw.Rule{{Guard: site.Guard}}, []string{"rule 1", `"site"`, "no Who", "keyfuncs.IP()"}},
		{"no poll", []nethttpmw.Rule{site, votes}, []string{"rule 2", `"vote"`, "no What", "keyfuncs.Param"}},
		{"no item on sale", []nethttpmw.Rule{sales}, []string{"rule 1", `"sale"`, "no What", "keyfuncs.Param"}},
		{"no different thing", []nethttpmw.Rule{quota}, []string{"rule 1", `"quota"`, "no Which", "keyfuncs.Param"}},
		{"no operation ID", []nethttpmw.Rule{once}, []string{"rule 1", `"once"`, "no ID", "keyfuncs.IdempotencyKey()"}},
		{"a guard that can not decide inside the process", []nethttpmw.Rule{local}, []string{"rule 1", `"poll"`, "OutageLocal", "OutageClosed"}},
		{"figures both hidden and shown", []nethttpmw.Rule{secret}, []string{"rule 1", `"site"`, "Hide", "Legacy", "leave one"}},
		{"a guard twice", []nethttpmw.Rule{site, site}, []string{`"site"`, "two rules", "second guard"}},
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
