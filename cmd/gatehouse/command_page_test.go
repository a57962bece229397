package main

import (
	"flag"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/clitest"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/timed"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/ops/config"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

var update = flag.Bool("update", false, "write what the commands of docs/command.md print into the page")

const (
	commandPage = "../../docs/command.md"
	// pageURL is the application that the page attacks.
	pageURL = "http://127.0.0.1:8080"
	// pageRedis is its Redis.
	pageRedis = "127.0.0.1:6379"
)

// TestTheCommandsOfThePagePrintWhatItSays runs each line of docs/command.md that begins with "$ gatehouse",
// in order, and compares what it prints with the lines below it, times and the counts of polls masked. An
// exit code other than 0 stands in the page as a line "$ echo $?" with the code below it.
func TestTheCommandsOfThePagePrintWhatItSays(t *testing.T) {
	timed.Test(t, 2*time.Second, pagePrintsWhatItSays) // a command has 5 s for each call
}

func pagePrintsWhatItSays(t *timed.T) {
	data, err := os.ReadFile(commandPage)
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	dir, environ, url := pageWorld(t, page)
	redisAt := strings.TrimPrefix(environ[0], "REDIS_URL=redis://")
	blocks := regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(page, -1)
	if len(blocks) < 8 {
		t.Fatalf("%s has %d blocks of commands", commandPage, len(blocks))
	}
	for _, block := range blocks {
		var printed strings.Builder
		code := 0
		for _, command := range commandsOf(block[1]) {
			printed.WriteString("$ " + command + "\n")
			if command == "echo $?" {
				printed.WriteString(string(rune('0'+code)) + "\n")
				continue
			}
			cmd := clitest.Process(t, environ, wordsOf(t, strings.ReplaceAll(command, pageURL, url))[1:]...)
			cmd.Dir = dir
			out, _ := cmd.CombinedOutput()
			code = cmd.ProcessState.ExitCode()
			printed.WriteString(strings.NewReplacer(url, pageURL, redisAt, pageRedis).Replace(string(out)))
			if code != 0 && !strings.Contains(block[1], "$ echo $?") {
				t.Errorf("%s: exit code %d, of which the page says nothing: %s", command, code, out)
			}
		}
		got := printed.String()
		if *update {
			page = strings.Replace(page, block[1], got, 1)
		} else if masked(got) != masked(block[1]) {
			t.Errorf("the page has\n%s\nit prints\n%s\n(go test ./cmd/gatehouse -run Page -args -update writes it)",
				block[1], got)
		}
	}
	if *update {
		if err := os.WriteFile(commandPage, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// commandsOf returns the commands of a block, whose lines may go on behind a backslash.
func commandsOf(block string) (all []string) {
	block = strings.ReplaceAll(block, "\\\n", "\\\x00")
	for line := range strings.SplitSeq(block, "\n") {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			all = append(all, strings.ReplaceAll(command, "\\\x00", "\\\n"))
		}
	}
	return all
}

// wordsOf splits a command as a shell does: words may be quoted with ' or ".
func wordsOf(t testing.TB, command string) (words []string) {
	t.Helper()
	command = strings.ReplaceAll(command, "\\\n", " ")
	for _, word := range regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`).FindAllString(command, -1) {
		word = regexp.MustCompile(`'([^']*)'|"([^"]*)"`).ReplaceAllString(word, "$1$2")
		words = append(words, word)
	}
	if len(words) < 2 || words[0] != "gatehouse" {
		t.Fatalf("%q is no command that the test can run", command)
	}
	return words
}

// masked replaces what differs between runs.
func masked(text string) string {
	for _, mask := range []string{`\d{4}-\d\d-\d\dT[\d:.]+Z`, `\b[0-9hms.]+[hms]\b`, `t=[0-9]+`, `Retry-After: [0-9]+`, `(?m)^requests .*$`, `[0-9]+ x `, `in use: \d+`, `\b(?:Redis|Valkey) \d[\d.]+`,
		`(?m)^worst window .*$`} {
		text = regexp.MustCompile(mask).ReplaceAllString(text, "*")
	}
	return regexp.MustCompile(`(?m) +\* *`).ReplaceAllString(text, " *")
}

// pageWorld makes what the page tells of: its file of rules, what an application has counted in a Redis, and
// the application.
func pageWorld(t testing.TB, page string) (dir string, environ []string, url string) {
	t.Helper()
	rules := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(page)
	if rules == nil {
		t.Fatalf("%s has no file of rules", commandPage)
	}
	dir = t.TempDir()
	wrong := strings.NewReplacer("guard: site", "guard: sight", "what: {param: sku}, ", "").Replace(rules[1])
	routes := strings.Replace(rules[1], "...", "routes:\n  /api/: api\n...", 1)
	routes = strings.Replace(routes, "rules:\n", "rules:\n  api:\n    - {guard: site, who: address}\n", 1)
	for name, text := range map[string]string{"rules.yaml": rules[1], "wrong.yaml": wrong,
		"routes.yaml": routes} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var log strings.Builder
	clitest.CombinedLog(&log, 240, 2)
	if err := os.WriteFile(filepath.Join(dir, "access.log"), []byte(log.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	server := redistest.StartServer(t)
	cfg, err := config.Load(filepath.Join(dir, "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	gate := guardtest.NewEngine(redistest.Backend{Client: server.Client(t), Prefix: "gatehouse"})
	set, err := cfg.Build(gate)
	if err != nil {
		t.Fatal(err)
	}
	for range 58 {
		guardtest.Check(t, set.Guard("site"), core.Attempt{Actor: "203.0.113.7"})
	}
	for voter, choice := range map[string]string{"ann": "red", "bob": "blue", "cem": "red"} {
		guardtest.Check(t, set.Guard("poll"), core.Attempt{Actor: voter, Resource: "final", Item: choice})
	}
	shut := bans.New(gate, "shut", bans.Options{})
	const day = 24 * time.Hour
	for actor, length := range map[string]time.Duration{"203.0.113.7": time.Hour, "2001:db8::/64": day} {
		if err := shut.Ban(t.Context(), core.Attempt{Actor: actor}, length); err != nil {
			t.Fatal(err)
		}
	}
	return dir, []string{"REDIS_URL=redis://" + server.Addr()}, pageApplication(t)
}

// pageApplication serves what the page attacks.
func pageApplication(t testing.TB) string {
	t.Helper()
	gate := core.NewMemory(core.WithLogger(slog.New(slog.DiscardHandler)))
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	var mux http.ServeMux
	mux.Handle("GET /search", nethttpmw.HTTP(pipeline.Rule{
		Guard: limit.NewSlidingWindow(gate, "search", limit.PerSecond(10)), Who: keyfuncs.IP()})(ok))
	mux.Handle("GET /careless", nethttpmw.HTTP(pipeline.Rule{
		Guard: limit.NewSlidingWindow(gate, "careless", limit.PerMinute(10)),
		Who:   keyfuncs.FirstOf(keyfuncs.Header("X-Forwarded-For"), keyfuncs.IP())})(ok))
	server := httptest.NewServer(&mux)
	t.Cleanup(server.Close)
	return server.URL
}
