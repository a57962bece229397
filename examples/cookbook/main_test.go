package main

import (
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/embedded"
	"github.com/gatehouse-go/gatehouse/examples/cookbook/internal/recipetest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestAllRecipesAreServed(t *testing.T) {
	app, err := newApp(t.Context(), guardtest.NewEngine(redistest.Mini(t)))
	if err != nil {
		t.Fatal(err)
	}
	lamp := "/markets/fair/items/lamp"
	recipetest.Send(t, app, []recipetest.Request{
		{Method: "PUT", Path: "/me", User: "ann", Status: 204},
		{Method: "POST", Path: "/posts", User: "ann", ID: "1", Body: `{"text":"hello"}`, Status: 201},
		{Method: "GET", Path: "/users/ann/posts", Status: 200, Want: `"posts":1`},
		{Method: "PUT", Path: "/rooms/go/members/me", User: "ann", Status: 204},
		{Method: "GET", Path: "/rooms/go/members?prefix=a", Status: 200, Want: `["ann"]`},
		{Method: "POST", Path: lamp + "/offers", User: "bob", ID: "1", Body: `{"price":400}`, Status: 204},
		{Method: "POST", Path: lamp + "/purchases", User: "ann", ID: "1", Body: `{"price":400}`,
			Status: 200, Want: `{"balance":600}`},
		{Method: "POST", Path: "/lists/jobs/left", ID: "1", Body: "work", Status: 204},
		{Method: "POST", Path: "/lists/jobs/right/pop?wait=1s", ID: "2", Status: 200, Want: "work"},
	})
}

// TestScriptsHaveHeaders: each script begins with its purpose, KEYS, ARGV and Returns, and uses nothing but
// base Lua and redis.call, as docs/scripts.md has it.
func TestScriptsHaveHeaders(t *testing.T) {
	files, err := filepath.Glob("*/*.lua")
	if err != nil || len(files) < 9 {
		t.Fatalf("%q, %v", files, err)
	}
	header := regexp.MustCompile(
		`^-- [A-Z][a-z]+: (?s:.*)\n--\n-- KEYS  1 (?s:.*)\n-- ARGV  1 (?s:.*)\n-- Returns .`)
	forbidden := regexp.MustCompile(`\b(pcall|cjson|cmsgpack|struct|bit|math\.random|loadstring)\b|redis\.[^c]`)
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		about, code, _ := strings.Cut(string(source), "\n\n")
		if !header.MatchString(about) {
			t.Errorf("%s: the header is not purpose, KEYS, ARGV, Returns", file)
		}
		if found := forbidden.FindString(code); found != "" {
			t.Errorf("%s uses %s", file, found)
		}
		for i, line := range strings.Split(string(source), "\n") {
			if len(line) > 110 {
				t.Errorf("%s:%d is longer than 110 columns", file, i+1)
			}
		}
	}
}

// TestByHand runs each script as README.md shows it, first in the debugger, which discards what the script
// writes. X stands for any word of an answer.
func TestByHand(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*/*.lua")
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(redistest.StartServer(t).Addr())
	if err != nil {
		t.Fatal(err)
	}
	cli := func(input string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), "redis-cli", append([]string{"-h", host, "-p", port}, args...)...)
		cmd.Stdin = strings.NewReader(input)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("redis-cli %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	shown := regexp.MustCompile(`(?m)^redis-cli (.*) # (.*)$`).FindAllStringSubmatch(string(page), -1)
	ran := map[string]bool{}
	for _, line := range shown {
		args := strings.Fields(strings.ReplaceAll(line[1], "'", ""))
		if out := cli("continue\nquit\n", append([]string{"--ldb"}, args...)...); strings.Contains(out, "ERR") {
			t.Errorf("the debugger, %s:\n%s", line[1], out)
		}
		want := "^" + strings.ReplaceAll(regexp.QuoteMeta(line[2]), "X", `\S+`) + "$"
		if got := strings.Join(strings.Fields(cli("", args...)), " "); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%s: %s, want %s", line[1], got, line[2])
		}
		ran[args[1]] = true
	}
	for _, file := range files {
		if !ran[file] {
			t.Errorf("README.md does not show %s", file)
		}
	}
}

// TestCurlsOfTheREADME runs each line with curl that README.md shows, in their order, on the Redis inside the
// process that the program has without a REDIS_URL.
func TestCurlsOfTheREADME(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	rdb, inside, err := embedded.Connect("")
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	defer rdb.Close()
	app, err := newApp(t.Context(), core.New(rdb, core.WithDeadline(time.Minute)))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(app)
	defer server.Close()
	text := strings.ReplaceAll(string(page), "\\\n", " ")
	lines := regexp.MustCompile(`(?m)^curl -i (.*)$`).FindAllStringSubmatch(text, -1)
	for _, line := range lines {
		command := "curl -sS --fail-with-body " + strings.ReplaceAll(line[1], "localhost:8080", server.URL)
		if out, err := exec.CommandContext(t.Context(), "bash", "-c", command).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", line[1], err, out)
		}
	}
	if len(lines) < 5 {
		t.Errorf("found only %d lines", len(lines))
	}
}
