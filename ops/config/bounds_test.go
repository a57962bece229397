package config_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/ops/config"
)

// TestAFileCostsLittleWhateverIsInIt: 20,000 guards, or a join of 200,000 key functions, took 2.9 seconds and
// 1.5 GB. The bounds are far below what fits into a file, so that the test is quick.
func TestAFileCostsLittleWhateverIsInIt(t *testing.T) {
	const guard = "guards: {a: {votes: {}}}\n"
	const rules = "rules: {all: [{guard: a, who: ip, what: ip, which: ip}]}\n"
	many := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			_, _ = fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for _, tt := range []struct{ name, text, says string }{
		{"guards",
			"guards:\n" + many(2_000, "  g%d: {sliding_window: {limits: 1/min}}\n") + rules, "at most 1000"},
		{"a join", guard + "rules: {all: [{guard: a, who: {join: [" +
			strings.Repeat("ip, ", 20_000) + "ip]}}]}\n", "at most 64"},
		{"joins", guard + "keys:\n" +
			many(200, "  k%d: {join: ["+strings.Repeat("ip, ", 250)+"ip]}\n") + rules, "at most 64"},
		{"joins in joins", guard + "keys:\n" +
			many(300, "  k%d: {join: [{join: ["+strings.Repeat("ip,", 63)+"ip]},ip]}\n") + rules, ""},
		{"keys", guard + "keys:\n" + many(4_000, "  k%d: ip\n") + rules, "at most 1000"},
		{"lists of rules", guard + "rules:\n" +
			many(2_000, "  r%d: [{guard: a, who: ip, what: ip, which: ip}]\n"), "at most 1000"},
		{"lists of many rules", guard + "rules:\n" +
			many(200, "  r%d: ["+strings.Repeat("{guard: a, who: ip, what: ip},", 30)+"]\n"),
			"more than 5000 rules"},
		{"rules", guard + "rules:\n  all:\n" +
			strings.Repeat("  - {guard: a, who: ip, what: ip}\n", 2_500), "at most 1000"},
		{"lists", guard + rules + "lists:\n" + many(2_000, "  l%d: {key: ip, of: [192.0.2.1]}\n"), "at most 1000"},
		{"levels", guard + "x: " + strings.Repeat("[", 400_000) + "\n", "max depth"},
		{"values", guard + "x: [" + strings.Repeat("1,", 110_000) + "1]\n", "values"},
		{"members", guard + many(55_000, "x%d: 1\n"), "values"},
		{"the same in JSON", `{"guards":{` +
			many(2_000, `"g%d":{"sliding_window":{"limits":"1/min"}},`) + `"a":{"votes":{}}}}`,
			"at most 1000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := config.Parse("rules.yaml", []byte(tt.text))
			runtime.ReadMemStats(&after)
			took := (after.TotalAlloc - before.TotalAlloc) >> 20
			t.Logf("%d MiB", took)
			if took > 150 {
				t.Errorf("allocated %d MiB", took)
			}
			if err == nil && tt.says != "" || err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%.300v: want %q", err, tt.says)
			}
		})
	}
}
