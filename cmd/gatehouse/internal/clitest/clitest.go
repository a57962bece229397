// Package clitest runs commands in tests: each in a process of its own, as [Process] does always, and [Run]
// where all tests run.
package clitest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// asCommand is the variable with which the test binary runs as the command itself.
const asCommand = "GATEHOUSE_TEST_AS_COMMAND"

// known are the commands of Main.
var known []cli.Command

// Main is the body of TestMain, with the commands that the tests run.
func Main(m *testing.M, commands ...cli.Command) {
	known = commands
	if os.Getenv(asCommand) != "" {
		cli.Main(commands)
	}
	redistest.Main(m)
}

// Process returns the command as a process of its own. Of the environment it has only what it is given.
func Process(t testing.TB, environ []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append([]string{asCommand + "=1"}, environ...)
	if coverage := os.Getenv("GOCOVERDIR"); coverage != "" {
		cmd.Env = append(cmd.Env, "GOCOVERDIR="+coverage)
	}
	return cmd
}

// Answer is how the command ended.
type Answer struct {
	Code      int
	Out, Errs string
}

// Run runs the command with an answer to its question. In make test it runs in this process, which takes a
// tenth of the time, unless it needs an environment of its own.
func Run(t testing.TB, environ []string, input string, args ...string) Answer {
	t.Helper()
	named := func(variable string) bool { return strings.HasPrefix(variable, redisURL) }
	if !redistest.All() && !slices.ContainsFunc(environ, func(s string) bool { return !named(s) }) {
		getenv := func(name string) (value string) {
			for _, variable := range environ {
				if v, ok := strings.CutPrefix(variable, name+"="); ok {
					value = v
				}
			}
			return value
		}
		return here(t, &cli.Env{In: strings.NewReader(input), Getenv: getenv, Now: time.Now}, known, args)
	}
	cmd := Process(t, environ, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return Answer{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// redisURL is how the variable begins that names the Redis.
const redisURL = "REDIS_URL="

// OnRedis returns the environment and the flags for a backend.
func OnRedis(b redistest.Backend) (environ, flags []string) {
	addr := b.Options().Addrs[0]
	flags = []string{"-prefix", b.Prefix, "-timeout", "1m"}
	if b.Name == "cluster" {
		flags = append(flags, "-cluster")
	}
	return []string{redisURL + "redis://" + addr}, flags
}

// Here runs a command in this process, which is faster. e is what the command reads from.
func Here(t testing.TB, e *cli.Env, command cli.Command, args ...string) Answer {
	t.Helper()
	return here(t, e, []cli.Command{command}, append([]string{command.Name}, args...))
}

func here(t testing.TB, e *cli.Env, commands []cli.Command, args []string) Answer {
	t.Helper()
	var out, errs guardtest.Output
	e.Out, e.Errs = &out, &errs
	code := e.Run(t.Context(), commands, args)
	return Answer{code, out.String(), errs.String()}
}

// Want checks how the command ended: its exit code, and texts that its output and its errors contain. Where
// one of them is to be empty, it must be.
func (a Answer) Want(t testing.TB, code int, out, errs string) {
	t.Helper()
	fits := func(got, want string) bool { return strings.Contains(got, want) && (want != "" || got == "") }
	if a.Code != code || !fits(a.Out, out) || !fits(a.Errs, errs) {
		t.Errorf("exit code %d, output %q, errors %q\nwant %d, %q, %q", a.Code, a.Out, a.Errs, code, out, errs)
	}
}

// JSON reads output in JSON.
func (a Answer) JSON(t *testing.T) map[string]any {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal([]byte(a.Out), &all); err != nil {
		t.Fatalf("%v in %q, errors %q", err, a.Out, a.Errs)
	}
	return all
}

// RulesFile writes a file of rules and returns its path.
func RulesFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Rules is a file with several kinds of guards.
const Rules = `
keys:
  address: {ip: {trust_proxies: ["10.0.0.0/8"]}}
lists:
  staff: {key: {user: uid}, entries: [root]}
guards:
  site: {sliding_window: {limits: "3/min"}}
  plan: {sliding_window: {tiers: {by: {user: plan}, of: {gold: unlimited, paid: "9/min"}, others: "2/min"}}}
  poll: {votes: {}}
  sale: {seckill: {}}
rules:
  api:
    - {guard: site, who: address, allow: staff}
    - {guard: plan, who: {user: uid}, what: route}
  voting:
    - {guard: site, who: address}
    - {guard: poll, who: {user: uid}, what: {param: poll}, which: {form: choice}}
  shop:
    - {guard: sale, who: {user: uid}, what: {param: sku}, id: idempotency_key}
`

// CombinedLog makes lines of the combined format, one per 10 ms, of addresses in turn.
func CombinedLog(w io.Writer, lines, addresses int) {
	at := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	for i := range lines {
		n := i % addresses
		_, _ = fmt.Fprintf(w, "203.%d.%d.%d - - [%s] \"GET /search?q=%d HTTP/1.1\" 200 512 \"-\" "+
			"\"agent/1.0 (test)\"\n", n>>16, n>>8&255, n&255, at.Format("02/Jan/2006:15:04:05 -0700"), i)
		at = at.Add(10 * time.Millisecond)
	}
}

// FreeAddress returns an address on which nobody listens, for a program that a test starts.
func FreeAddress(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", redistest.FreePort(t))
}
