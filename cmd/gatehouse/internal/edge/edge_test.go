package edge

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/clitest"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/timed"
)

func TestMain(m *testing.M) {
	if from := os.Getenv(asPackets); from != "" {
		if err := sendPackets(from); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	clitest.Main(m, Bans)
}

// shortBan is the length of the bans by strikes.
const shortBan = time.Second

// patience is how long a test waits for what has to happen.
const patience = 2 * time.Minute

func shut(t testing.TB, b redistest.Backend) *bans.Guard {
	t.Helper()
	return bans.New(guardtest.NewEngine(b), "shut", bans.Options{Refusals: 1, First: shortBan})
}

func ban1(t testing.TB, g *bans.Guard, actor string, length time.Duration) {
	t.Helper()
	if err := g.Ban(t.Context(), core.Attempt{Actor: actor}, length); err != nil {
		t.Fatal(err)
	}
}

// backendOf returns a server as a backend.
func backendOf(t testing.TB, s *redistest.Server) redistest.Backend {
	t.Helper()
	return redistest.Backend{Name: "redis", Client: s.Client(t), Prefix: "gatehouse"}
}

func environOf(s *redistest.Server) []string { return []string{"REDIS_URL=redis://" + s.Addr()} }

// followed is a process with -follow.
type followed struct {
	t    testing.TB
	cmd  *exec.Cmd
	file string
	errs guardtest.Output
	// group: it has a process group of its own, as in a terminal.
	group bool
}

// follow starts the command with -follow, and waits for its first file.
func follow(t testing.TB, environ []string, args ...string) *followed {
	t.Helper()
	f := &followed{t: t, file: filepath.Join(t.TempDir(), "banned")}
	return f.start(environ, append([]string{"bans", "shut", "-follow", "-out", f.file}, args...)...)
}

// start starts a command, which has a minute for each call unless args say otherwise, and waits for its
// first file.
func (f *followed) start(environ []string, args ...string) *followed {
	t := f.t
	t.Helper()
	args = slices.Insert(args, 1, "-timeout", "1m")
	f.cmd = clitest.Process(t, append([]string{"PATH=" + os.Getenv("PATH")}, environ...), args...)
	f.cmd.Stderr = &f.errs
	f.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: f.group}
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if f.cmd.ProcessState == nil {
			_ = f.cmd.Process.Kill()
			_ = f.cmd.Wait()
		}
		if t.Failed() {
			t.Logf("the command wrote %q, the file is %q", f.errs.String(), f.text())
		}
	})
	f.eventually(func() bool { _, err := os.Stat(f.file); return err == nil }, "the first file")
	return f
}

func (f *followed) text() string {
	data, err := os.ReadFile(f.file)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func (f *followed) eventually(cond func() bool, what string) {
	f.t.Helper()
	redistest.Eventually(f.t, patience, cond, what)
}

// becomes waits until the file has a text.
func (f *followed) becomes(text string) {
	f.t.Helper()
	f.eventually(func() bool { return f.text() == text }, fmt.Sprintf("the file %q", text))
}

// other is what the command has written of anything but a Redis that was silent for seconds.
func (f *followed) other() string {
	return regexp.MustCompile(`(?m)^gatehouse bans: the Redis at .* is (away: .*|back)\n`).
		ReplaceAllString(f.errs.String(), "")
}

// says waits until the command has written a text so many times.
func (f *followed) says(text string, times int) {
	f.t.Helper()
	f.eventually(func() bool { return strings.Count(f.errs.String(), text) >= times }, fmt.Sprintf("%q", text))
	if n := strings.Count(f.errs.String(), text); n != times {
		f.t.Errorf("%q was said %d times, want %d", text, n, times)
	}
}

// end sends a signal, and returns the exit code.
func (f *followed) end(signal os.Signal) int {
	f.t.Helper()
	if err := f.cmd.Process.Signal(signal); err != nil {
		f.t.Fatal(err)
	}
	_ = f.cmd.Wait()
	return f.cmd.ProcessState.ExitCode()
}

// wantCleared ends the command, and wants all to be let in then. One -exec may have failed: the command was
// there before the program that it reloads.
func (f *followed) wantCleared(letsIn func() bool) {
	f.t.Helper()
	if code := f.end(syscall.SIGTERM); code != 0 {
		f.t.Errorf("exit code %d", code)
	}
	f.eventually(letsIn, "-clear lets all in")
	if said := f.errs.String(); strings.Count(said, "tried again") > 1 {
		f.t.Errorf("%q", said)
	}
}

func TestWhoIsBannedNow(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		environ, flags := clitest.OnRedis(b)
		run := func(args ...string) clitest.Answer {
			return clitest.Run(t, environ, "", append(append([]string{"bans", "shut"}, args...), flags...)...)
		}
		run().Want(t, 0, "nobody is banned\n", "")
		g, other := shut(t, b), bans.New(guardtest.NewEngine(b), "shut2", bans.Options{})
		for i, actor := range []string{"203.0.113.7", "2001:db8::/64", "ann\n\x1b[2J", strings.Repeat("ü", 50)} {
			ban1(t, g, actor, time.Duration(i+1)*time.Hour)
		}
		ban1(t, other, "nobody", time.Hour)
		ban1(t, g, "over", time.Hour)
		ban1(t, g, "over", time.Millisecond)
		if _, err := g.Strike(t.Context(), core.Attempt{Actor: "struck"}); err != nil {
			t.Fatal(err)
		}
		redistest.Eventually(t, patience, func() bool { return !strings.Contains(run().Out, "over") },
			"the ban is over")

		lines := strings.Split(run().Out, "\n")
		if len(lines) != 6 || !strings.HasPrefix(lines[1], "#") || !strings.HasPrefix(lines[2], `"ann\n\x1b[2J"`) ||
			!regexp.MustCompile(`^203\.0\.113\.7 +(1h0m0s|59m\d+s) +20.*Z$`).MatchString(lines[4]) {
			t.Errorf("%q", lines)
		}
		if got := run("-json", "-most", "3").JSON(t); len(got["banned"].([]any)) != 3 || got["left_out"] != 1.0 {
			t.Errorf("%v", got)
		}
		const geo = "2001:db8::/64 1;\n203.0.113.7/32 1;\n"
		run("-format", "nginx-geo").Want(t, 0, geo, "2 that cannot be written as nginx-geo")
		run("-format", "nginx-geo", "-most", "1").Want(t, 0, "2001:db8::/64 1;\n", "1 ban that end")
		file := filepath.Join(t.TempDir(), "banned")
		run("-format", "nginx-geo", "-out", file).Want(t, 0, "", "2 that cannot")
		data, err := os.ReadFile(file)
		if info, _ := os.Stat(file); err != nil || string(data) != geo || info.Mode().Perm() != 0o644 {
			t.Errorf("%q, %v", data, err)
		}
	})
}

func TestMistakesInTheCommandLine(t *testing.T) {
	t.Parallel()
	for args, errs := range map[string]string{
		"":                                  "0 operands: name the guard",
		"a b":                               "2 operands: name the guard",
		"shut -most 0":                      "-most is 0",
		"shut -follow":                      "-follow needs -out",
		"shut -follow -out x -every 99ms":   "it must be 100ms or more",
		"shut -exec x":                      "-exec and -clear need -follow",
		"shut -clear":                       "-exec and -clear need -follow",
		"shut -out x":                       "-out needs -format: plain, nginx-map, nginx-geo, haproxy-acl, nft",
		"shut -json -format nft":            "leave out one",
		"shut -format iptables":             "write one of plain",
		"shut -format nft -out /dev/null":   "is not a regular file",
		"shut -format nft -out /none/x":     "-out /none/x cannot be written",
		"shut -format nft -out /dev/null/x": "cannot be written",
		"shut":                              "no Redis is named",
	} {
		t.Run(args, func(t *testing.T) {
			clitest.Run(t, nil, "", strings.Fields("bans "+args)...).Want(t, 2, "", errs)
		})
	}
	server := redistest.StartServer(t)
	clitest.Run(t, environOf(server), "", "bans", "no name", "-timeout", "1m").Want(t, 2, "", "has ' ' in it")
}

// wantFollows bans an actor by strikes, and wants what -exec has read to follow the ban within a second.
func (f *followed) wantFollows(t testing.TB, read string, g *bans.Guard, a core.Attempt) {
	t.Helper()
	is := func(text string) bool { data, err := os.ReadFile(read); return err == nil && string(data) == text }
	f.eventually(func() bool { return is("") }, "nobody is in the file")
	var asked time.Time
	for banned := false; !banned; {
		var err error
		asked = time.Now()
		if banned, err = g.Strike(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	struck := time.Now()
	var took time.Duration
	f.eventually(func() bool {
		took = time.Since(struck)
		return is(a.Actor+"\n") || took > shortBan
	}, "the ban is in the file, or over")
	f.eventually(func() bool { return is("") }, "the ban is not in the file")
	lasted, most := time.Since(struck), time.Since(asked)
	if took <= shortBan && most < shortBan || took > time.Second || lasted > shortBan+time.Second {
		t.Errorf("a ban of %v was in the file after %v, and out of it after %v", shortBan, took, lasted)
	}
}

// TestABanReachesTheFileAndLeavesIt: a ban by strikes, on one server and on a cluster.
//
// Promise: `gatehouse bans -follow` writes a ban into the file within a second, and takes it out when it
// ends.
func TestABanReachesTheFileAndLeavesIt(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		environ, flags := clitest.OnRedis(b)
		dir := t.TempDir()
		file, read := filepath.Join(dir, "banned"), filepath.Join(dir, "read")
		f := (&followed{t: t, file: file}).start(environ, append([]string{"bans", "shut",
			"-follow", "-out", file, "-format", "plain", "-exec", "cp " + file + " " + read}, flags...)...)
		g := shut(t, b)
		try := 0
		timed.Test(t, 200*time.Millisecond, func(t *timed.T) { // the file is written each 500 ms
			try++
			f.wantFollows(t, read, g, core.Attempt{Actor: fmt.Sprintf("203.0.113.%d", try)})
		})
		if _, err := g.Strike(t.Context(), core.Attempt{Actor: "struck"}); err != nil {
			t.Fatal(err)
		}
		// a key of somebody else's hides no ban
		b.Client.RPush(t.Context(), g.Key("list"), "x")
		if err := b.Client.Expire(t.Context(), g.Key("list"), time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		ban1(t, g, "2001:db8::/64", time.Hour)
		f.becomes("2001:db8::/64\n")
		if err := g.Unban(t.Context(), core.Attempt{Actor: "2001:db8::/64"}); err != nil {
			t.Fatal(err)
		}
		f.becomes("")
		if code := f.end(syscall.SIGTERM); code != 0 || f.other() != "" {
			t.Errorf("exit code %d, errors %q", code, f.errs.String())
		}
	})
}

// TestRedisIsAway: bans stay until they end, and not longer. Changes of the meantime are seen afterwards.
func TestRedisIsAway(t *testing.T) {
	redistest.LeftToCI(t)
	for _, kind := range []string{"stopped", "hanging"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			timed.Test(t, time.Second, func(t *timed.T) { redisIsAway(t, kind) })
		})
	}
}

func redisIsAway(t testing.TB, kind string) {
	o := redistest.StartOutages(t, "--appendonly", "yes", "--appendfsync", "always")
	f := follow(t, environOf(o.Server), "-format", "plain", "-every", "100ms", "-timeout", "3s")
	g := shut(t, backendOf(t, o.Server))
	ban1(t, g, "long", time.Hour)
	ban1(t, g, "short", 6*time.Second)
	f.becomes("long\nshort\n")
	end := o.Begin(kind)
	f.says("is away: ", 1)
	f.becomes("long\n")
	end()
	f.says("is back", 1)
	ban1(t, g, "new", 2*time.Hour)
	f.becomes("new\nlong\n")
	f.says("is away: ", 1)
	o.CutAll() // of a client that reconnects at once nothing is told
	ban1(t, g, "newer", 3*time.Hour)
	f.becomes("newer\nnew\nlong\n")
	if err := backendOf(t, o.Server).Client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	f.becomes("")
	if code := f.end(syscall.SIGINT); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestTheFileOfBeforeStaysWithoutRedis: a command that cannot start changes nothing.
func TestTheFileOfBeforeStaysWithoutRedis(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "banned")
	if err := os.WriteFile(file, []byte("203.0.113.7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	follows := []string{"bans", "shut", "-follow", "-format", "plain", "-out", file, "-timeout", "1m"}
	closed := []string{"REDIS_URL=redis://" + redistest.ClosedAddress(t)}
	clitest.Run(t, closed, "", follows...).Want(t, 2, "", "cannot use the Redis")
	server := redistest.StartServer(t, "--rename-command", "client", "")
	a := clitest.Run(t, environOf(server), "", follows...)
	a.Want(t, 2, "", "CLIENT TRACKING, by which Redis tells of changes: ERR unknown command")
	a.Want(t, 2, "", "(run the command without -follow from time to time: that needs no CLIENT TRACKING)")
	clitest.Run(t, environOf(server), "", "bans", "shut", "-format", "plain", "-timeout", "1m").
		Want(t, 0, "", "")
	if data, err := os.ReadFile(file); err != nil || string(data) != "203.0.113.7\n" {
		t.Errorf("%q, %v", data, err)
	}
}

// TestExecRunsAfterEachChange, one at a time, whatever comes of it, and a last time for -clear.
func TestExecRunsAfterEachChange(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t)
	log := filepath.Join(t.TempDir(), "log")
	f := follow(t, append(environOf(server), "LOG="+log), "-format", "plain", "-every", "100ms", "-most", "2",
		"-clear", "-exec", `mkdir "$LOG.lock" || echo two >>"$LOG"; sleep 0.3; rmdir "$LOG.lock"; echo run >>"$LOG"
		 echo 'no such proxy' >&2; exit 3`)
	g := shut(t, backendOf(t, server))
	for i, want := range []string{"a1\n", "a2\na1\n", "a3\na2\n", "a4\na3\n"} {
		ban1(t, g, fmt.Sprint("a", i+1), time.Duration(i+1)*time.Hour)
		f.becomes(want)
	}
	f.eventually(func() bool {
		return strings.Contains(f.errs.String(), "left out: 2 bans that end before")
	}, "the bans that are left out")
	if code := f.end(syscall.SIGTERM); code != 0 || f.text() != "" {
		t.Errorf("exit code %d, the file %q", code, f.text())
	}
	data, err := os.ReadFile(log)
	runs := strings.Count(string(data), "run\n")
	if err != nil || strings.Contains(string(data), "two") || runs < 2 {
		t.Errorf("%d runs: %q, %v", runs, data, err)
	}
	f.says("-exec: exit status 3: no such proxy: it is tried again\n", 1)
	f.says("left out: 1 ban that end", 1)
}

// TestRunsOfExecAreApart: also the last one, for -clear, begins -every after the one before.
func TestRunsOfExecAreApart(t *testing.T) {
	redistest.LeftToCI(t)
	t.Parallel()
	timed.Test(t, time.Second, runsAreApart) // a command that is held up begins late
}

func runsAreApart(t *timed.T) {
	server := redistest.StartServer(t)
	log := filepath.Join(t.TempDir(), "log")
	f := follow(t, environOf(server), "-format", "plain", "-every", "3s", "-clear", "-exec", "date +%s >>"+log)
	ban1(t, shut(t, backendOf(t, server)), "a", time.Hour)
	f.becomes("a\n")
	runs := func() []string { data, _ := os.ReadFile(log); return strings.Fields(string(data)) }
	f.eventually(func() bool { return len(runs()) == 2 }, "two runs")
	if code := f.end(syscall.SIGTERM); code != 0 || f.text() != "" || len(runs()) != 3 {
		t.Fatalf("exit code %d, the file %q, runs %q", code, f.text(), runs())
	}
	before, errBefore := strconv.Atoi(runs()[1])
	last, errLast := strconv.Atoi(runs()[2])
	if errBefore != nil || errLast != nil || last == before { // in whole seconds
		t.Errorf("the runs began at %q", runs())
	}
}

// TestExecThatFailsRunsAgain without a further change: the proxy learns of the ban.
func TestExecThatFailsRunsAgain(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t)
	dir := t.TempDir()
	file, proxy, tried := filepath.Join(dir, "banned"), filepath.Join(dir, "proxy"), filepath.Join(dir, "tried")
	has := func(path string) bool { data, err := os.ReadFile(path); return err == nil && string(data) == "a\n" }
	f := (&followed{t: t, file: file}).start(environOf(server), "bans", "shut", "-follow", "-out", file,
		"-format", "plain", "-every", "100ms", "-exec",
		"cp "+file+" "+proxy+"/ && exit; cp "+file+" "+tried+"; echo no such proxy; exit 3")
	ban1(t, shut(t, backendOf(t, server)), "a", time.Hour)
	f.eventually(func() bool { return has(tried) }, "the command has failed with the ban in the file")
	f.says("no such proxy: it is tried again\n", 1)
	if err := os.Mkdir(proxy, 0o700); err != nil {
		t.Fatal(err)
	}
	f.eventually(func() bool { return has(filepath.Join(proxy, "banned")) }, "the proxy reads the file")
	f.says("-exec: it works again\n", 1)
	f.says("no such proxy: it is tried again\n", 1)
}

// TestAFileThatCannotBeWritten is tried again, and told once.
func TestAFileThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t)
	f := follow(t, environOf(server), "-format", "plain", "-every", "100ms")
	dir := filepath.Dir(f.file)
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	g := shut(t, backendOf(t, server))
	ban1(t, g, "a", time.Hour)
	f.says("no such file or directory: it is tried again", 1)
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	f.becomes("a\n")
	f.says("it is tried again", 1)
}

// TestWithoutClearTheFileStays: a proxy that is reloaded then goes on refusing.
func TestWithoutClearTheFileStays(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t)
	f := follow(t, environOf(server), "-format", "plain")
	ban1(t, shut(t, backendOf(t, server)), "a", time.Hour)
	f.becomes("a\n")
	if code := f.end(syscall.SIGINT); code != 0 || f.text() != "a\n" || f.other() != "" {
		t.Errorf("exit code %d, the file %q, errors %q", code, f.text(), f.errs.String())
	}
}

// TestExecThatLeavesAProcess: a command that had started a daemon, which keeps the output open, was taken
// for one that has failed, and ran again and again.
func TestExecThatLeavesAProcess(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t)
	log := filepath.Join(t.TempDir(), "log")
	f := follow(t, environOf(server), "-format", "plain", "-every", "300ms",
		"-exec", "sleep 20 & echo run >>"+log)
	g := shut(t, backendOf(t, server))
	runs := func() int { data, _ := os.ReadFile(log); return strings.Count(string(data), "run") }
	for i := range 2 {
		ban1(t, g, fmt.Sprint("a", i), time.Duration(9-i)*time.Hour)
		f.eventually(func() bool { return strings.Contains(f.text(), fmt.Sprint("a", i)) && runs() > i }, "a run")
	}
	if f.end(syscall.SIGTERM); strings.Contains(f.errs.String(), "-exec") {
		t.Errorf("%d runs", runs())
	}
}

// TestExecOutlivesCtrlC: a terminal sends SIGINT to the command of -exec, too, which ended it. The proxy
// never got the last change.
func TestExecOutlivesCtrlC(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t)
	dir := t.TempDir()
	file, proxy, begun := filepath.Join(dir, "banned"), filepath.Join(dir, "proxy"), filepath.Join(dir, "begun")
	f := &followed{t: t, file: file, group: true}
	f.start(environOf(server), "bans", "shut", "-follow", "-out", file, "-format", "plain", "-every", "100ms",
		"-exec", "cp "+file+" "+begun+"; sleep 1; cp "+file+" "+proxy)
	f.eventually(func() bool { _, err := os.Stat(proxy); return err == nil }, "the run for the first file")
	ban1(t, shut(t, backendOf(t, server)), "a", time.Hour)
	f.eventually(func() bool { data, _ := os.ReadFile(begun); return string(data) == "a\n" }, "the command runs")
	if err := syscall.Kill(-f.cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = f.cmd.Wait()
	if data, err := os.ReadFile(proxy); err != nil || string(data) != "a\n" {
		t.Errorf("%q, %v: exit code %d", data, err, f.cmd.ProcessState.ExitCode())
	}
}
