package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

// asCommand is the variable with which the test binary runs as the command itself.
const asCommand = "GATEHOUSE_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	redistest.Main(m)
}

// process returns the command as a process of its own. Of the environment it has only what it is given.
func process(t *testing.T, environ []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append([]string{asCommand + "=1"}, environ...)
	if coverage := os.Getenv("GOCOVERDIR"); coverage != "" {
		cmd.Env = append(cmd.Env, "GOCOVERDIR="+coverage)
	}
	return cmd
}

// answer is how the command ended.
type answer struct {
	code      int
	out, errs string
}

// gatehouse runs the command with an answer to its question.
func gatehouse(t *testing.T, environ []string, input string, args ...string) answer {
	t.Helper()
	cmd := process(t, environ, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return answer{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// want checks how the command ended: its exit code, and texts that its output and its errors contain. Where
// one of them is to be empty, it must be.
func (a answer) want(t *testing.T, code int, out, errs string) {
	t.Helper()
	fits := func(got, want string) bool { return strings.Contains(got, want) && (want != "" || got == "") }
	if a.code != code || !fits(a.out, out) || !fits(a.errs, errs) {
		t.Errorf("exit code %d, output %q, errors %q\nwant %d, %q, %q", a.code, a.out, a.errs, code, out, errs)
	}
}

// parse reads output in JSON.
func (a answer) parse(t *testing.T) map[string]any {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal([]byte(a.out), &all); err != nil {
		t.Fatalf("%v in %q, errors %q", err, a.out, a.errs)
	}
	return all
}

func TestMistakesInTheCommandLine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args      string
		code      int
		out, errs string
	}{
		{"", 2, "", "usage: gatehouse COMMAND"},
		{"help", 0, "usage: gatehouse COMMAND", ""},
		{"--help", 0, "usage: gatehouse COMMAND", ""},
		{"help peek", 0, "usage: gatehouse peek [flags]", ""},
		{"version", 0, "gatehouse ", ""},
		{"version now", 2, "", `operand "now"`},
		{"attack -h", 0, "up to 100000", ""},
		{"explode", 2, "", `there is no command "explode"`},
		{"help explode", 2, "", `there is no command "explode"`},
		{"peek -guard", 2, "", "flag needs an argument"},
		{"peek -gard api", 2, "", "flag provided but not defined: -gard"},
		{"peek actor=a", 2, "", "-guard is missing"},
		{"peek -guard api -kind window actor=a", 2, "", "sliding_window"},
		{"peek -guard api -kind sliding_window actor=a -limits 5/s", 2, "", "no Redis is named"},
		{"peek -guard api -kind sliding_window actor", 2, "", `"actor" is not a new FIELD=VALUE`},
		{"peek -guard api -kind sliding_window actor=a actor=b", 2, "", `"actor=b" is not a new FIELD=VALUE`},
		{"tally -guard poll", 2, "", "name one poll"},
		{"sale burn -guard sale item", 2, "", "status, verify, open, restock, close"},
		{"sale open -guard sale item -opens tomorrow", 2, "", "write a time such as"},
		{"attack", 2, "", "pass one URL"},
		{"attack http://staging.example/", 2, "", "-allow-host staging.example"},
		{"attack http://127.0.0.1:1/ -n 100001", 2, "", "-n is 100001: it may be 1 to 100000"},
		{"attack http://127.0.0.1:1/ -c 1000", 2, "", "-c is 1000: it may be 1 to 256"},
		{"attack http://127.0.0.1:1/ -limit 5", 2, "", "-limit: "},
		{"attack http://127.0.0.1:1/ -limit 5/day", 2, "", "more than the most of 1h0m0s"},
		{"attack http://127.0.0.1:1/ -race -spoof", 2, "", "different attacks"},
		{"attack http://127.0.0.1:1/ -stock 5", 2, "", "-stock needs -race"},
		{"attack http://127.0.0.1:1/ -admitted 6xx", 2, "", `-admitted has "6xx"`},
		{"attack http://127.0.0.1:1/ -H X-User", 2, "", "write it as 'Name: value'"},
		{"attack http://127.0.0.1:1/ -race", 2, "", "connection refused"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			gatehouse(t, nil, "", strings.Fields(tt.args)...).want(t, tt.code, tt.out, tt.errs)
		})
	}
}
