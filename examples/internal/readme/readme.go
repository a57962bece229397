// Package readme tests the programs of README.md: each is a file of examples/readme that the README shows or
// links to, and answers the lines of the README's console as the README says.
package readme

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

const page = "../../../README.md"

// Shown reports an error unless a block of the README is the test's own main.go.
func Shown(t *testing.T) {
	t.Helper()
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text(t), "\n```go\n"+string(program)+"```\n") {
		t.Error("README.md does not show main.go as it is")
	}
}

// Linked reports an error unless the README links to the test's own main.go.
func Linked(t *testing.T) {
	t.Helper()
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if link := "(examples/readme/" + filepath.Base(folder) + "/main.go)"; !strings.Contains(text(t), link) {
		t.Errorf("README.md has no link %s", link)
	}
}

// Run serves the program on a free port, with a Redis of its own, and runs the lines of the README's console
// that ask for one of the paths. What they print has to be what the README shows.
func Run(t *testing.T, app func(*core.Engine) http.Handler, paths ...string) {
	t.Helper()
	redistest.Need(t, "bash", "curl", "sort", "uniq")
	rdb := redistest.StartServer(t).Client(t)
	server := httptest.NewServer(app(core.New(rdb, core.WithDeadline(30*time.Second))))
	defer server.Close()
	asked := 0
	for _, step := range console(t) {
		if !about(step.command, paths) {
			continue
		}
		asked++
		line := strings.ReplaceAll(step.command, "http://127.0.0.1:8080", server.URL)
		got, err := exec.CommandContext(t.Context(), "bash", "-c", line).Output()
		if want := blanks(step.prints); err != nil || blanks(string(got)) != want {
			t.Errorf("%s\nprints %q, %v; README.md shows %q", step.command, got, err, want)
		}
	}
	if asked < 2 {
		t.Errorf("README.md has only %d lines about %q", asked, paths)
	}
	if err := rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	afresh := httptest.NewServer(app(core.New(rdb, core.WithDeadline(30*time.Second))))
	defer afresh.Close()
	unknown(t, rdb, afresh.URL, paths[0])
}

// unknown asks with users and passwords that are made up, and with header fields that clients may forge: they
// get 401, and leave no keys in Redis but those of the limit of their address.
func unknown(t *testing.T, rdb *redis.Client, url, path string) {
	t.Helper()
	before := rdb.DBSize(t.Context()).Val()
	for _, user := range []string{"eve", "ann", ""} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+path,
			strings.NewReader("choice=red"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("X-Forwarded-For", "198.51.100.1")
		r.SetBasicAuth(user, "")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close() // only the status counts
		if answer.StatusCode != http.StatusUnauthorized {
			t.Errorf("user %q without a password gets %d, want 401", user, answer.StatusCode)
		}
	}
	made := []string{}
	for _, key := range rdb.Keys(t.Context(), "*").Val() {
		if !strings.Contains(key, ":site:") {
			made = append(made, key)
		}
	}
	if len(made) > int(before) { // what the program itself has made, such as a sale
		t.Errorf("strangers made keys: %q", made)
	}
}

// step is a line of a console, with what it prints.
type step struct{ command, prints string }

func console(t *testing.T) (steps []step) {
	t.Helper()
	_, block, _ := strings.Cut(text(t), "\n```console\n$ curl")
	block, _, found := strings.Cut("$ curl"+block, "\n```\n")
	if !found {
		t.Fatal("README.md has no console with curl")
	}
	for line := range strings.Lines(block + "\n") {
		if command, is := strings.CutPrefix(line, "$ "); is {
			steps = append(steps, step{command: command})
		} else {
			steps[len(steps)-1].prints += line
		}
	}
	return steps
}

func about(command string, paths []string) bool {
	for _, path := range paths {
		if strings.Contains(command, path) {
			return true
		}
	}
	return false
}

var runs = regexp.MustCompile(`[ \t]+`)

// blanks makes outputs comparable whose columns uniq aligns.
func blanks(s string) string {
	var lines bytes.Buffer
	for line := range strings.Lines(s) {
		lines.WriteString(strings.TrimSpace(runs.ReplaceAllString(line, " ")) + "\n")
	}
	return lines.String()
}

func text(t *testing.T) string {
	t.Helper()
	all, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return string(all)
}
