package redistest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestLeftoversAreFound(t *testing.T) {
	s := StartServer(t)
	c := s.Client(t)
	prefix := prefixes.next(t.Name())
	for key, ttl := range map[string]time.Duration{
		prefix + ":fine":    time.Minute,
		prefix + ":forever": 0,
		"stray\n":           time.Minute,
		"x":                 0,
	} {
		if err := c.Set(t.Context(), key, 1, ttl).Err(); err != nil {
			t.Fatal(err)
		}
	}
	bad, err := leftovers(t.Context(), c, prefixes.testOf)
	if err != nil {
		t.Fatal(err)
	}
	checkBad(t, bad, prefix)
}

func TestLeftoversOnMiniredisAreFound(t *testing.T) {
	b := Mini(t)
	for key, ttl := range map[string]time.Duration{
		b.Prefix + ":fine":    time.Minute,
		b.Prefix + ":forever": 0,
		"stray\n":             time.Minute,
		"x":                   0,
	} {
		if err := b.Client.Set(t.Context(), key, 1, ttl).Err(); err != nil {
			t.Fatal(err)
		}
	}
	checkBad(t, miniLeftovers(b.Mini), b.Prefix)
	b.Mini.FlushAll() // otherwise this test would fail now
}

func checkBad(t *testing.T, bad []string, prefix string) {
	t.Helper()
	got := strings.Join(bad, "; ")
	for _, want := range []string{
		fmt.Sprintf("%q of %s has no TTL", prefix+":forever", t.Name()),
		`"stray\n" does not begin with the Prefix of any Backend`,
		`"x" does not begin`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("leftovers %s\nwant among them: %s", got, want)
		}
	}
	if len(bad) != 3 {
		t.Errorf("%d leftovers, want 3: %s", len(bad), got)
	}
}

func TestReportStopsAtTwenty(t *testing.T) {
	var text strings.Builder
	report(&text, "here", make([]string, 50))
	if lines := strings.Count(text.String(), "\n"); lines != 21 ||
		!strings.Contains(text.String(), "50 bad keys left on here") {
		t.Errorf("%d lines: %s", lines, text.String())
	}
}

// What follows runs this test binary once more, as a package with a fault.

const childEnv = "REDISTEST_CHILD"

func child(t *testing.T, test string) *exec.Cmd {
	t.Helper()
	Need(t, Program())
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), childEnv+"=1")
	return cmd
}

func TestMainFailsOnALeftover(t *testing.T) {
	out, err := child(t, "TestChildLeavesAKey").CombinedOutput()
	if err == nil || !strings.Contains(string(out), `of TestChildLeavesAKey has no TTL`) ||
		!strings.Contains(string(out), "--- PASS") {
		t.Errorf("err = %v, output:\n%s", err, out)
	}
}

func TestChildLeavesAKey(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		return // runs in a process of its own, for TestMainFailsOnALeftover
	}
	b := Single(t)
	if err := b.Client.Set(t.Context(), b.Prefix+":forever", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestAKilledTestBinaryLeavesNoServer(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs the parent-death signal of Linux")
	}
	cmd := child(t, "TestChildWaitsToBeKilled")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var addr string
	for lines := bufio.NewScanner(out); addr == "" && lines.Scan(); {
		if _, after, ok := strings.Cut(lines.Text(), "listening "); ok {
			addr = after
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if addr == "" {
		t.Fatal("the child did not start its server")
	}
	Eventually(t, 10*time.Second, func() bool { return !listening(addr) },
		"the server to die with the test binary")
}

func TestChildWaitsToBeKilled(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		return // runs in a process of its own, for TestAKilledTestBinaryLeavesNoServer
	}
	fmt.Println("listening " + StartServer(t).Addr())
	<-t.Context().Done()
}
