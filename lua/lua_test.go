package lua_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/internal/everyscript"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/lua"
	"github.com/gatehouse-go/gatehouse/lua/internal/shared"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// scripts holds the embedded scripts by name.
var scripts = func() map[string]string {
	sources := map[string]string{}
	for _, name := range lua.Names() {
		sources[name] = lua.Source(name)
	}
	return sources
}()

func TestEveryFileIsEmbedded(t *testing.T) {
	files, _, err := shared.Read(".")
	if err != nil || len(files) != len(scripts) {
		t.Errorf("%d files, %d embedded (%v)", len(files), len(scripts), err)
	}
	for file, source := range files {
		if source != scripts[strings.TrimSuffix(file, ".lua")] {
			t.Errorf("%s is not what is embedded", file)
		}
	}
}

// TestAScriptThatIsMissingSaysWhatToDo: the panic comes when a program starts, before anything is logged.
func TestAScriptThatIsMissingSaysWhatToDo(t *testing.T) {
	for _, name := range []string{
		"seckill/reserv", "seckill/reserve.lua", "shared/clock", "seckill/shared/sale_keep",
	} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.Contains(text, "write the file lua/"+name+".lua") {
					t.Errorf("Source(%q): %s", name, text)
				}
			}()
			lua.Source(name)
		}()
	}
}

// TestScriptsKeepTheConventions of docs/scripts.md. Redis itself rejects a script that sets a global
// variable.
func TestScriptsKeepTheConventions(t *testing.T) {
	page, err := os.ReadFile("../docs/scripts.md")
	if err != nil {
		t.Fatal(err)
	}
	_, commands, _ := strings.Cut(string(page), "all of them in Redis 6.2:*\n")
	commands, _, _ = strings.Cut(commands, "\n\n")

	form := regexp.MustCompile(`^-- [A-Z][a-z ]+: (?s:.*)\n--\n-- KEYS +1 (?s:.*)\n-- ARGV +(?:1 (?s:.*)|none)\n-- Returns `)
	nowHeader := regexp.MustCompile(`(?:\d|then) now +(?:milli|micro)seconds since 1970; (?:absent or )?empty: ` +
		`the server's clock\n(?s:.*)-- Returns`)
	forbidden := regexp.MustCompile(`\b(pcall|cjson|cmsgpack|struct|bit|math\.random|os|loadstring)\b`)
	use := regexp.MustCompile(`redis\.(\w+)(.{0,20})`)
	used := make(map[string]bool)
	for file, source := range scripts {
		for number, line := range strings.Split(source, "\n") {
			if len(line) > 110 {
				t.Errorf("%s:%d has %d columns, want 110 at most", file, number+1, len(line))
			}
		}
		header, code, _ := strings.Cut(source, "\n\n")
		if !form.MatchString(header) {
			t.Errorf("%s: the header is not purpose, KEYS, ARGV, Returns", file)
		}
		if clock := strings.Contains(code, "'TIME'"); clock != nowHeader.MatchString(header) {
			t.Errorf("%s reads the clock: %v; want a now as docs/scripts.md has it if it does", file, clock)
		}
		if clock, block := strings.Count(code, "'TIME'"), strings.Count(code, "-- shared clock"); clock != block {
			t.Errorf("%s reads the clock outside of the shared block", file)
		}
		code = regexp.MustCompile(`--.*`).ReplaceAllString(code, "")
		if found := forbidden.FindString(code); found != "" {
			t.Errorf("%s uses %s", file, found)
		}
		for _, m := range use.FindAllStringSubmatch(code, -1) {
			switch command := regexp.MustCompile(`^\('([A-Z]+)'`).FindStringSubmatch(m[2]); {
			case m[1] == "error_reply" && strings.HasPrefix(m[2], "('GATEHOUSE "):
			case m[1] == "call" && command != nil:
				used[command[1]] = true
			default:
				t.Errorf("%s has %s", file, m[0])
			}
		}
	}
	if want := strings.Fields(strings.ReplaceAll(commands, "`",
		"")); !slices.Equal(slices.Sorted(maps.Keys(used)), want) {
		t.Errorf("the scripts use %q, docs/scripts.md says %q", slices.Sorted(maps.Keys(used)), want)
	}
}

// TestSharedBlocksAreEqual checks that go generate ./lua would change nothing, and finds no mistake.
func TestSharedBlocksAreEqual(t *testing.T) {
	files, sources, err := shared.Read(".")
	if err != nil {
		t.Fatal(err)
	}
	updated, err := shared.Update(files, sources)
	if err != nil {
		t.Error(err)
	}
	for file, text := range updated {
		if text != files[file] {
			t.Errorf("%s has drifted from its shared blocks: run go generate ./lua", file)
		}
	}
}

// TestByHand runs every script as docs/scripts.md shows it: redis-cli --eval file keys , arguments.
func TestByHand(t *testing.T) {
	s := redistest.StartServer(t)
	rdb, byHand := s.Client(t), map[string]bool{}
	for _, step := range everyscript.Steps() {
		if byHand[step.Script] && !redistest.All() { // each script once; what follows needs what this call leaves
			err := rdb.Eval(t.Context(), lua.Source(step.Script), step.Keys, step.Args).Err()
			if err != nil && !errors.Is(err, redis.Nil) {
				t.Fatalf("%s %q: %v", step.Script, step.Args, err)
			}
			redistest.Linger(t, rdb, step.Keys...)
			continue
		}
		byHand[step.Script] = true
		out := redisCLI(t, s, "", "--eval", step.Script+".lua", strings.Join(step.Keys, " "), ",", step.Args)
		if got := strings.ReplaceAll(strings.TrimSuffix(out, "\n"), "\n", " "); !step.Answered(got) {
			t.Errorf("%s %q: %q, want %q", step.Script, step.Args, got, step.Answer)
		}
		redistest.Linger(t, rdb, step.Keys...) // most steps say what time it is
	}
}

// TestStepsInTheDebugger: a script runs line by line under --ldb and shows its variables.
func TestStepsInTheDebugger(t *testing.T) {
	s := redistest.StartServer(t)
	out := redisCLI(t, s, "next\nnext\nnext\nprint limit\ncontinue\nquit\n",
		"--ldb", "--eval", "limit/sliding_window.lua", "w{a}", ",", []string{"5/60000:", "5000000", "3"})
	for _, want := range []string{"local log, limit, now = KEYS", "<value> \"5/60000:\"", "stop reason"} {
		if !strings.Contains(out, want) {
			t.Errorf("the debugger does not show %q:\n%s", want, out)
		}
	}
}

func redisCLI(t *testing.T, s *redistest.Server, input string, args ...any) string {
	t.Helper()
	host, port, err := net.SplitHostPort(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	words := []string{"-h", host, "-p", port}
	for _, arg := range args {
		switch arg := arg.(type) {
		case string:
			words = append(words, strings.Fields(arg)...)
		case []string:
			words = append(words, arg...)
		}
	}
	cmd := exec.CommandContext(t.Context(), "redis-cli", words...)
	cmd.Stdin = strings.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("redis-cli %q: %v %s", words, err, stderr.String())
	}
	return string(out)
}
