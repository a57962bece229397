package replay

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/clitest"
)

const fourAMinute = "guards: {site: {sliding_window: {limits: 4/min}}}\n" +
	"rules: {all: [{guard: site, who: ip}]}\n"

// here runs the command in this process.
func here(t *testing.T, input string, args ...string) clitest.Answer {
	t.Helper()
	return clitest.Here(t, &cli.Env{In: strings.NewReader(input)}, Command, args...)
}

// TestALogInAnyDialectIsReadRight replays the logs of testdata, each of which has the same 24 requests
// of three clients within 12 seconds, as programs and shippers write them. With the right flags, where a log
// needs a word, all have the same result.
func TestALogInAnyDialectIsReadRight(t *testing.T) {
	t.Parallel()
	rules := clitest.RulesFile(t, fourAMinute)
	flags := map[string][]string{
		"docker-no-time.log": {"-format", "$method $uri $remote_addr $status"},
		"day-first.log":      {"-format", "$remote_addr|$time|$request|$status", "-time", "02.01.2006 15:04:05"},
		"other-names.log": {"-field", "time=when:ms", "-field", "duration=spent:us", "-field", "remote=peer",
			"-field", "method=verb", "-field", "uri=target"},
		"slog-json.log": {"-field", "duration=latency:ns"},
	}
	says := map[string]string{
		"caddy-milliseconds.log": "duration has no unit, so a request counts when it ended",
		"caddy-wall.log":         "duration has no unit",
		"gin-zerolog.log":        "latency has no unit",
		"gin.log":                "32 lines, 0 broken, 8 of something else",
		"echo.log":               ": echo, 24 lines",
		"slog-text.log":          ": logfmt, 25 lines, 0 broken, 1 of something else",
		"apache-vhost.log":       ": vhost, ",
	}
	logs, err := filepath.Glob("testdata/*.log")
	if err != nil || len(logs) < 35 {
		t.Fatalf("%d logs, %v", len(logs), err)
	}
	for _, log := range logs {
		t.Run(filepath.Base(log), func(t *testing.T) {
			name := filepath.Base(log)
			got := here(t, "", append([]string{rules, log}, flags[name]...)...)
			for _, want := range []string{"requests   24, 2026-11-24T0", " 0 broken",
				"refused  12 of 24 (50.0 %), 3 of 3 actors", "reason   limited: 12", "4 of 8", says[name]} {
				if got.Code != 0 || !strings.Contains(got.Out, want) {
					t.Errorf("exit %d, %q is missing in %s%s", got.Code, want, got.Out, got.Errs)
				}
			}
		})
	}
}

// TestALogOfWhichMostWasNotReadIsNoAllClear ends with exit code 2 where "refused 0" would say nothing.
//
// Promise: A replay that read nothing, or fewer lines than were broken, has exit code 2.
func TestALogOfWhichMostWasNotReadIsNoAllClear(t *testing.T) {
	t.Parallel()
	rules := clitest.RulesFile(t, fourAMinute)
	const good = `192.0.2.10 - - [24/Nov/2026:08:30:00 +0000] "GET / HTTP/1.1" 200 5` + "\n"
	spent := func(form string, each float64) string {
		var b strings.Builder
		for i := range 40 {
			_, _ = fmt.Fprintf(&b, `{"msec":%d.5,"remote_addr":"192.0.2.10","request":"GET / HTTP/1.1","request_time":`+form+
				"}\n", 1795509000+i/4, each*float64(i))
		}
		return b.String()
	}
	for _, tt := range []struct {
		name, log, says string
		args            []string
	}{
		{"an empty log", "", "the logs have no requests", nil},
		{"a log of comments", "#Software: x\n#Fields: date time c-ip cs-method cs-uri\n", "the logs have no requests", nil},
		{"a log of an application without requests", `{"level":"info","msg":"started"}` + "\n", "no line is of a known format", nil},
		{"most lines in another form", good + strings.Repeat("upstream timed out\n", 4),
			"1 request of 5 lines were read, which says nothing about the rules\n  line 2: ", nil},
		{"names of hosts in place of addresses", strings.ReplaceAll(good, "192.0.2.10", "mail.example"), "", nil},
		{"names of hosts, and the format was named", strings.ReplaceAll(good, "192.0.2.10", "mail.example"),
			`line 1: the address of the client is "mail.example"`, []string{"-format", "common"}},
		{"no address", `{"time":"2026-11-24T08:30:00Z","method":"GET","uri":"/","status":200}`,
			"line 1: it has no address of a client. Its fields are time, method, uri, status: -field", nil},
		{"a time in a form of its own", `{"time":"24.11.2026 8:30","method":"GET","uri":"/","remote_ip":"192.0.2.10"}`,
			`the time is "24.11.2026 8:30"`, nil},
		{"milliseconds under a name of seconds", spent("%.3f", 21), "if request_time is in seconds, ", nil},
		{"a layout that is none", good, "write the moment 2006-01-02 15:04:05 as the log would", []string{"-time", "%d.%m.%Y"}},
		{"limits in another grammar", good, "write limits as in a file", []string{"-sweep", "5,20/min"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "log")
			if err := os.WriteFile(log, []byte(tt.log), 0o600); err != nil {
				t.Fatal(err)
			}
			got := here(t, "", append([]string{rules, log}, tt.args...)...)
			if got.Code != 2 || got.Out != "" || !strings.Contains(got.Errs, tt.says) {
				t.Errorf("exit %d, %s%s", got.Code, got.Out, got.Errs)
			}
		})
	}
	t.Run("the unit was named", func(t *testing.T) {
		here(t, spent("%.3f", 21), rules, "-", "-field", "duration=request_time:ms").
			Want(t, 0, "requests   40", "")
	})
	t.Run("an empty log before another", func(t *testing.T) {
		here(t, good, rules, os.DevNull, "-").Want(t, 0, "requests   1,", "")
	})
}
