// Package readme tests the programs of README.md: each is a file of examples/readme that the README shows or
// links to, and answers the lines of the README's console as the README says.
package readme

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

const page = "../../../README.md"

// Shown reports an error unless a block of the README is the test's own main.go, of so many lines at most.
func Shown(t *testing.T, most int) {
	t.Helper()
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text(t), "\n```go\n"+string(program)+"```\n") {
		t.Error("README.md does not show main.go as it is")
	}
	if lines := bytes.Count(program, []byte("\n")); lines > most {
		t.Errorf("main.go has %d lines, want %d at most", lines, most)
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
	askAsShown(t, server.URL, paths)
	if err := rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	afresh := httptest.NewServer(app(core.New(rdb, core.WithDeadline(30*time.Second))))
	defer afresh.Close()
	unknown(t, rdb, afresh.URL, paths[0])
}

// RunAlone builds the test's own main.go and runs it with no Redis and no REDIS_URL, as the README says, but
// on a free port. It has to say where it listens and what it counts on, and to answer the lines of the
// README's console that ask for one of the paths.
func RunAlone(t *testing.T, paths ...string) {
	t.Helper()
	redistest.LeftToCI(t) // the program is built for that
	redistest.Need(t, "bash", "curl", "sort", "uniq")
	const shown = "127.0.0.1:8080"
	program, err := os.ReadFile("main.go")
	if err != nil || !bytes.Contains(program, []byte(shown)) {
		t.Fatalf("main.go does not listen on %s: %v", shown, err)
	}
	// The program opens its port a moment after it is known to be free. So it gets an address of its own, where
	// that can be had: other tests listen on 127.0.0.1.
	host := "127.0.0.1"
	if runtime.GOOS == "linux" {
		host = fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	}
	free, err := new(net.ListenConfig).Listen(t.Context(), "tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close() // for the program
	here, err := filepath.Abs("main.go")
	if err != nil {
		t.Fatal(err)
	}
	temporary := t.TempDir()
	binary, overlay := filepath.Join(temporary, "program"), filepath.Join(temporary, "overlay.json")
	moved := filepath.Join(temporary, "main.go")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{here: moved}})
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{
		overlay: replace, moved: bytes.ReplaceAll(program, []byte(shown), []byte(address)),
	} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", binary, ".")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}

	run := exec.CommandContext(t.Context(), binary)
	run.Env = append(os.Environ(), "REDIS_URL=", "GIN_MODE=release")
	errors, err := run.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	said := ""
	lines := bufio.NewScanner(errors)
	for !strings.Contains(said, "listening on http://"+address) && lines.Scan() {
		said += lines.Text() + "\n"
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_, _ = io.Copy(io.Discard, errors)
		_ = run.Wait() // it is killed
	}()
	defer func() { _ = run.Process.Kill(); <-stopped }()
	if !strings.Contains(said, "lost when this one ends") {
		t.Errorf("the program says %q", said)
	}
	redistest.Eventually(t, time.Minute, func() bool {
		connection, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err == nil {
			_ = connection.Close()
		}
		return err == nil
	}, "the program listens")
	askAsShown(t, "http://"+address, paths)
}

// askAsShown runs the lines of the README's console about the paths, at another address.
func askAsShown(t *testing.T, url string, paths []string) {
	t.Helper()
	asked := 0
	for _, step := range console(t) {
		if !about(step.command, paths) {
			continue
		}
		asked++
		line := strings.ReplaceAll(step.command, "http://127.0.0.1:8080", url)
		got, err := exec.CommandContext(t.Context(), "bash", "-c", line).Output()
		if want := blanks(step.prints); err != nil || blanks(string(got)) != want {
			t.Errorf("%s\nprints %q, %v; README.md shows %q", step.command, got, err, want)
		}
	}
	if asked == 0 {
		t.Errorf("README.md has no lines about %q", paths)
	}
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
		if !strings.Contains(key, ":per-ip:") {
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
	for _, block := range regexp.MustCompile("(?s)\n```console\n(.*?)\n```\n").FindAllStringSubmatch(text(t), -1) {
		for line := range strings.Lines(block[1] + "\n") {
			if command, is := strings.CutPrefix(line, "$ "); is {
				steps = append(steps, step{command: command})
			} else if len(steps) > 0 {
				steps[len(steps)-1].prints += line
			}
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
