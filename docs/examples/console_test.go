package examples_test

import (
	"context"
	"flag"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

var update = flag.Bool("update", false, "write the answers that commands get into the documents")

func TestMain(m *testing.M) { redistest.Main(m) }

// apps are the applications that the commands of the pages talk to, by the name that a comment before a block
// gives: <!-- app: NAME -->. Without one it is that of the page's folder, such as guards. An application gets
// an engine on an empty Redis.
var apps = map[string]func(ctx context.Context, gate *core.Engine) (http.Handler, error){
	"guards": guardsApp,
}

// console is a block of commands in a document, with the comments before it.
var console = regexp.MustCompile("(?m)((?:^<!-- (?:not run|app): .* -->\\n)*)^```console\\n((?:.*\\n)*?)^```$")

// TestCommandsOfTheDocumentsAnswerAsShown runs each line of a console block that begins with "$ ": redis-cli
// against a Redis, and curl against an application on it, for which the documents say 127.0.0.1:8080. All
// blocks of a page share a Redis and an application. Moments, in numbers of seven digits and more, in dates
// and in random names, are not compared; a line "..." stands for any lines; numbers of seconds in header
// fields may be a few less. A block that cannot run has a comment before it: <!-- not run: why -->. With
// -update the answers are written into the documents.
func TestCommandsOfTheDocumentsAnswerAsShown(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	server, ran := redistest.StartServer(t), 0
	for _, page := range pagesWithCommands(t, root) {
		name, err := filepath.Rel(root, page)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(filepath.ToSlash(name), func(t *testing.T) {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			s := &session{root: root, redis: server, apps: map[string]string{}}
			if err := server.Client(t).FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			shown := console.ReplaceAllStringFunc(string(text), func(block string) string {
				parts := console.FindStringSubmatch(block)
				others := strings.Contains(parts[2], " --ldb ") || strings.Contains(parts[2], "$ gatehouse ") ||
					strings.Contains(parts[2], "$ curl ") && strings.Contains(string(text), "```go\npackage main\n")
				if others || strings.Contains(parts[1], "<!-- not run: ") {
					return block // tests of the root folder, of cmd/gatehouse and of the program look at these
				}
				app := filepath.Base(filepath.Dir(page))
				if named := regexp.MustCompile(`<!-- app: (\w+) -->`).FindStringSubmatch(parts[1]); named != nil {
					app = named[1]
				}
				answered, n := s.run(t, app, parts[2])
				ran += n
				return parts[1] + "```console\n" + answered + "```"
			})
			if *update && shown != string(text) {
				if err := os.WriteFile(page, []byte(shown), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	if ran < 3 {
		t.Errorf("only %d commands ran", ran)
	}
}

// pagesWithCommands returns the documents that have blocks of commands.
func pagesWithCommands(t *testing.T, root string) (pages []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata"):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".md"):
			return nil
		}
		text, err := os.ReadFile(path)
		if console.Match(text) {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// session is what the commands of a page talk to.
type session struct {
	root  string
	redis *redistest.Server
	apps  map[string]string // addresses of those that run, by name
}

// run runs the commands of a block. It returns the block with the answers that it should show, and the number
// of its commands. An answer that is shown well stays as it is.
func (s *session) run(t *testing.T, app, block string) (shown string, commands int) {
	t.Helper()
	lines := strings.SplitAfter(block, "\n")
	for i := 0; i < len(lines); {
		if !strings.HasPrefix(lines[i], "$ ") {
			shown += lines[i] // a comment in front of the first command
			i++
			continue
		}
		command := strings.TrimPrefix(lines[i], "$ ")
		shown += lines[i]
		for i++; strings.HasSuffix(command, "\\\n") && i < len(lines); i++ {
			command += lines[i]
			shown += lines[i]
		}
		want := ""
		for ; i < len(lines) && !strings.HasPrefix(lines[i], "$ "); i++ {
			want += lines[i]
		}
		got := s.command(t, app, command)
		commands++
		switch {
		case answersMatch(want, got),
			strings.Contains(command, " LRANGE 'gatehouse:window:") && answersMatch(longer(want), longer(got)):
			shown += want
		case *update:
			shown += got
		default:
			shown += want
			t.Errorf("$ %sanswers\n%swhere the page has\n%s(go test ./docs/examples -update writes it)",
				command, got, want)
		}
	}
	return shown, commands
}

// command runs redis-cli or curl and returns what it prints.
func (s *session) command(t *testing.T, app, command string) string {
	t.Helper()
	if !regexp.MustCompile(`^(redis-cli|curl) `).MatchString(command) {
		t.Errorf("$ %sis neither redis-cli nor curl: put <!-- not run: why --> before the block", command)
		return ""
	}
	address := ""
	if strings.HasPrefix(command, "curl ") {
		address = s.address(t, app)
	}
	_, port, _ := strings.Cut(s.redis.Addr(), ":")
	script := "redis-cli() { command redis-cli --no-raw -p " + port + " \"$@\"; }\n" +
		"curl() { command curl -sS --max-time 20 \"$@\"; }\n" +
		strings.ReplaceAll(command, "127.0.0.1:8080", address)
	shell := exec.CommandContext(t.Context(), "bash", "-c", script)
	shell.Dir = s.root
	output, err := shell.CombinedOutput()
	if err != nil {
		t.Errorf("$ %s%v", command, err)
	}
	text := strings.ReplaceAll(string(output), "\r", "")
	if address != "" {
		text = strings.ReplaceAll(text, address, "127.0.0.1:8080")
	}
	return regexp.MustCompile(`[\t ]+\n`).ReplaceAllString(strings.TrimRight(text, "\n")+"\n", "\n")
}

// address starts an application at the first use and returns its host and port.
func (s *session) address(t *testing.T, app string) string {
	t.Helper()
	if s.apps[app] != "" {
		return s.apps[app]
	}
	newApp, ok := apps[app]
	if !ok {
		t.Fatalf("there is no application %q: name one by <!-- app: NAME -->, or add one to apps", app)
	}
	rdb := redis.NewClient(&redis.Options{Addr: s.redis.Addr(), ContextTimeoutEnabled: true})
	handler, err := newApp(t.Context(), core.New(rdb, core.WithDeadline(10*time.Second)))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		server.Close()
		if err := core.Drain(context.Background()); err != nil {
			t.Error(err)
		}
		_ = rdb.Close()
	})
	s.apps[app] = server.Listener.Addr().String()
	return s.apps[app]
}

// answersMatch reports whether an answer is the one that a page shows.
func answersMatch(shown, got string) bool {
	want, have := masked(shown), masked(got)
	for len(want) > 0 {
		if want[0] == "..." {
			for len(have) > 0 && (len(want) == 1 || !lineMatches(want[1], have[0])) {
				have = have[1:]
			}
			want = want[1:]
			continue
		}
		if len(have) == 0 || !lineMatches(want[0], have[0]) {
			return false
		}
		want, have = want[1:], have[1:]
	}
	return len(have) == 0
}

var (
	moments = regexp.MustCompile(`\d{7,}|\w{3}, \d\d \w{3} \d{4} [\d:]{8} GMT|[0-9a-zA-Z_-]{22,}`)
	seconds = regexp.MustCompile(`(;t=|Retry-After: |"retry_after":|in )(\d+)`)
)

func masked(text string) []string {
	return strings.Split(moments.ReplaceAllString(strings.Trim(text, "\n"), "N"), "\n")
}

// longer makes moments of the numbers in a log of a sliding window, which tell the time since the first.
func longer(text string) string {
	return regexp.MustCompile(`"(\d+)"`).ReplaceAllString(text, `"0000000$1"`)
}

// lineMatches reports whether two lines are equal, up to ten seconds that have passed in fields that count
// down.
func lineMatches(want, got string) bool {
	if seconds.ReplaceAllString(want, "$1") != seconds.ReplaceAllString(got, "$1") {
		return false
	}
	shown, found := seconds.FindAllStringSubmatch(want, -1), seconds.FindAllStringSubmatch(got, -1)
	for i := range shown {
		a, err := strconv.Atoi(shown[i][2])
		b, err2 := strconv.Atoi(found[i][2])
		if err != nil || err2 != nil || b > a || b < a-10 {
			return false
		}
	}
	return true
}

// TestAnswersThatDifferAreFound: what the comparison lets pass, and what it does not.
func TestAnswersThatDifferAreFound(t *testing.T) {
	for _, c := range []struct {
		shown, got string
		match      bool
	}{
		{"1) (integer) 1\n", "1) (integer) 1\n", true},
		{"1) (integer) 1\n", "1) (integer) 0\n", false},
		{"3) (integer) 1795250087090753\n", "3) (integer) 1895250087090753\n", true},
		{"RateLimit: \"site\";r=0;t=60\n", "RateLimit: \"site\";r=0;t=58\n", true},
		{"RateLimit: \"site\";r=0;t=60\n", "RateLimit: \"site\";r=1;t=60\n", false},
		{"RateLimit: \"site\";r=0;t=60\n", "RateLimit: \"site\";r=0;t=3\n", false},
		{"Retry-After: 60\n", "Retry-After: 61\n", false},
		{"a\n...\nd\n", "a\nb\nc\nd\n", true},
		{"a\n...\n", "a\nb\nc\nd\n", true},
		{"a\n...\ne\n", "a\nb\nc\nd\n", false},
		{"a\n", "a\nb\n", false},
		{"a\nb\n", "a\n", false},
	} {
		if answersMatch(c.shown, c.got) != c.match {
			t.Errorf("%q for %q: want %v", c.got, c.shown, c.match)
		}
	}
}
