package walk

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

var update = flag.Bool("update", false, "write the figures of today")

const module = "github.com/gatehouse-go/gatehouse/"

// TestWhatAnAllowedRequestRuns compares functions and files with those in testdata. Fewer are no mistake.
func TestWhatAnAllowedRequestRuns(t *testing.T) {
	if !redistest.All() {
		t.Log("left to make all: it builds everything with counters")
		return
	}
	folder := t.TempDir()
	program := filepath.Join(folder, "program")
	run(t, "go", "build", "-cover", "-covermode=atomic", "-coverpkg="+module+"...", "-o", program, "./program")
	walk := exec.CommandContext(t.Context(), program, folder)
	walk.Env = append(os.Environ(), "REDIS="+redistest.StartServer(t).Addr(), "GOCOVERDIR="+t.TempDir())
	if output, err := walk.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	const golden = "testdata/walk.txt"
	want := read(t, golden)
	var now strings.Builder
	for _, route := range []string{"limit", "two-limits", "vote", "order", "budget", "room"} {
		functions, files := least(t, filepath.Join(folder, route))
		fmt.Fprintf(&now, "%-11s %3d functions %2d files\n", route, functions, files)
		var most [2]int
		for line := range strings.Lines(want) {
			if name, figures, _ := strings.Cut(line, " "); name == route {
				_, _ = fmt.Sscanf(figures, "%d functions %d files", &most[0], &most[1]) // zero: too many
			}
		}
		if !*update && (functions > most[0] || files > most[1]) {
			t.Errorf("an allowed request of %s runs %d functions in %d files; %s has %d and %d: take it back, "+
				"or say why and run this test with -update", route, functions, files, golden, most[0], most[1])
		}
	}
	t.Logf("\n%s", now.String())
	if *update {
		if err := os.WriteFile(golden, []byte(now.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// least returns the least of what the requests of a route have run: on a busy machine one may have run more.
func least(t *testing.T, route string) (functions, files int) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(route, "*"))
	if err != nil || len(all) == 0 {
		t.Fatalf("%s has no data: %v", route, err)
	}
	for i, data := range all {
		if fu, fi := count(t, data); i == 0 || fu < functions {
			functions, files = fu, fi
		}
	}
	return functions, files
}

// count returns how many functions of ours have run, and in how many files.
func count(t *testing.T, data string) (functions, files int) {
	t.Helper()
	profile := filepath.Join(data, "profile")
	run(t, "go", "tool", "covdata", "textfmt", "-i="+data, "-o="+profile)
	var ran strings.Builder // without the files that have not, which take the tool long to read
	for line := range strings.Lines(read(t, profile)) {
		if !strings.HasSuffix(line, " 0\n") {
			ran.WriteString(line)
		}
	}
	if err := os.WriteFile(profile, []byte(ran.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	in := map[string]bool{}
	for line := range strings.Lines(run(t, "go", "tool", "cover", "-func="+profile)) {
		fields := strings.Fields(line) // file:line: function percentage
		ours, isOurs := strings.CutPrefix(fields[0], module)
		if !isOurs || strings.HasPrefix(ours, "internal/testkit/walk/") || fields[len(fields)-1] == "0.0%" {
			continue
		}
		functions++
		file, _, _ := strings.Cut(ours, ":")
		in[file] = true
	}
	return functions, len(in)
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	var output, errors bytes.Buffer
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdout, cmd.Stderr = &output, &errors
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, errors.String())
	}
	return output.String()
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !*update {
		t.Fatal(err)
	}
	return string(text)
}
