package serve_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/clitest"
	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/serve"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/proxies"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/ops/gateway"
)

func TestMain(m *testing.M) { clitest.Main(m, serve.Command) }

const rules = `
guards:
  site: {fixed_window: {limits: "100000/h"}}
rules:
  site:
    - {guard: site, who: ip}
routes:
  /: site
...
`

// running is the command as a process.
type running struct {
	*exec.Cmd
	errs  guardtest.Output
	ended chan error
}

// folder returns a folder with a file of rules, whose path is short enough for sockets.
func folder(t *testing.T) (dir, file string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "serve")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file = filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, file
}

// start starts the command, and waits until it is ready.
func start(t *testing.T, environ []string, args ...string) *running {
	t.Helper()
	r := &running{Cmd: clitest.Process(t, environ, append([]string{"serve"}, args...)...),
		ended: make(chan error, 1)}
	r.run(t)
	return r
}

func (r *running) run(t *testing.T) {
	t.Helper()
	r.Stderr = &r.errs
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { r.ended <- r.Wait() }()
	t.Cleanup(func() { _ = r.Process.Kill() })
	redistest.Eventually(t, 2*time.Minute, func() bool { return strings.Contains(r.errs.String(), "is ready") },
		"it does not start")
}

// stop ends the process, and wants exit code 0.
func (r *running) stop(t *testing.T) {
	t.Helper()
	if err := r.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-r.ended; err != nil {
		t.Errorf("%v: %s", err, r.errs.String())
	}
}

// client returns a client for a Unix socket.
func client(path string) *http.Client {
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}}}
}

// ask asks as nginx does, and returns the status and the field RateLimit.
func ask(c *http.Client) (status int, limit string, err error) {
	r, err := http.NewRequest(http.MethodGet, "http://gatehouse/check", nil)
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("X-Original-Method", "GET")
	r.Header.Set("X-Original-URI", "/")
	r.Header.Set("X-Forwarded-For", "203.0.113.7")
	resp, err := c.Do(r)
	if err != nil {
		return 0, "", err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header.Get("Ratelimit"), errors.Join(err, resp.Body.Close())
}

func wantLeft(t *testing.T, c *http.Client, left int) {
	t.Helper()
	status, limit, err := ask(c)
	if err != nil || status != http.StatusNoContent || !strings.HasPrefix(limit, fmt.Sprintf(`"site";r=%d;`, left)) {
		t.Errorf("%d %s %v: want %d left", status, limit, err, left)
	}
}

// TestServeOnRedis: two processes count together, the file is followed, and the operator sees it.
func TestServeOnRedis(t *testing.T) {
	dir, file := folder(t)
	environ := []string{"REDIS_URL=redis://" + redistest.StartServer(t).Addr()}
	var clients []*http.Client
	var all []*running
	for i := range 2 {
		socket := filepath.Join(dir, fmt.Sprint(i))
		all = append(all, start(t, environ, "-from", "nginx", "-rules", file, "-listen", "unix:"+socket,
			"-operator", "127.0.0.1:0"))
		info, err := os.Stat(socket)
		if err != nil || info.Mode().Perm() != 0o660 {
			t.Errorf("%v, %v: want mode 0660", info, err)
		}
		clients = append(clients, client(socket))
	}
	var left [3]int
	redistest.Eventually(t, 2*time.Minute, func() bool { // while Redis is late each process counts by itself
		for i := range left {
			_, limit, _ := ask(clients[i%2])
			left[i] = 0
			_, _ = fmt.Sscanf(limit, `"site";r=%d;`, &left[i]) // another answer is none
		}
		return left[0] > 99_000 && left[1] == left[0]-1 && left[2] == left[0]-2
	}, "the processes count together")

	if err := os.WriteFile(file, []byte(strings.Replace(rules, "100000", "50", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := all[0].Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, 2*time.Minute, func() bool {
		_, limit, _ := ask(clients[0])
		return regexp.MustCompile(`r=[0-4]?\d;`).MatchString(limit)
	}, "the file is not read")

	pages := regexp.MustCompile(`url=(http://127[^ \n]+)`).FindStringSubmatch(all[0].errs.String())
	if pages == nil {
		t.Fatal(all[0].errs.String())
	}
	for host, want := range map[string]int{"": 200, "evil.example": 403, "localhost": 200} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, pages[1]+"metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != want || want == 200 &&
			!strings.Contains(string(body), `gatehouse_decisions_total{guard="site",reason="ok",source="redis"}`) {
			t.Errorf("by the name %q: %d %s", host, resp.StatusCode, body)
		}
	}
	for _, r := range all {
		r.stop(t)
	}
}

// TestOneProcessAfterTheOther: while one takes the other's place, and reads its file, no question is lost.
func TestOneProcessAfterTheOther(t *testing.T) {
	dir, file := folder(t)
	socket := filepath.Join(dir, "gatehouse.sock")
	deploy(t, "nginx", file, socket, func() func() error {
		c := client(socket)
		return func() error {
			status, _, err := ask(c)
			if err == nil && status != http.StatusNoContent {
				err = fmt.Errorf("status %d", status)
			}
			return err
		}
	})
}

// TestDeploymentBehindProxies: clients of a proxy do not notice it.
//
// Promise (Gateway): At a deployment, a reload and SIGTERM no request is lost.
func TestDeploymentBehindProxies(t *testing.T) {
	redistest.LeftToCI(t)
	proxies.Each(t, func(t *testing.T, program proxies.Program) {
		if program.From == gateway.Traefik {
			return // it asks by TCP, where systemd has to keep the socket
		}
		_, file := folder(t)
		p := proxies.Start(t, program, nil)
		deploy(t, program.Name, file, p.Address(), func() func() error {
			c := &http.Client{Timeout: time.Minute, Transport: new(http.Transport)} // a connection of its own
			t.Cleanup(c.CloseIdleConnections)
			return func() error {
				resp, err := c.Post(p.URL+"/orders", "text/plain", strings.NewReader("an order"))
				if err != nil {
					return err
				}
				body, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusOK || string(body) != "8 <nil>" || resp.Header.Get("Ratelimit") == "" {
					err = errors.Join(err, fmt.Errorf("%s %v %s", resp.Status, resp.Header, body))
				}
				return err
			}
		})
	})
}

// deploy has one process take the place of the other, three times in CI, and each read its file, while clients ask.
func deploy(t *testing.T, from, file, socket string, clientOf func() (ask func() error)) {
	t.Helper()
	environ := []string{"REDIS_URL=redis://" + redistest.StartServer(t).Addr()}
	args := []string{"-from", from, "-rules", file, "-listen", "unix:" + socket}
	former := start(t, environ, args...)
	over := make(chan struct{})
	var all sync.WaitGroup
	var asked atomic.Int64
	for range 4 {
		all.Go(func() {
			ask := clientOf()
			for {
				select {
				case <-over:
					return
				default:
				}
				if err := ask(); err != nil {
					t.Error(err)
					return
				}
				asked.Add(1)
			}
		})
	}
	times := 3
	if !redistest.All() {
		times = 1
	}
	for range times {
		next := start(t, environ, args...)
		former.stop(t)
		if err := errors.Join(os.WriteFile(file, []byte(rules+"# "+fmt.Sprint(asked.Load())+"\n"), 0o600),
			next.Process.Signal(syscall.SIGHUP)); err != nil {
			t.Fatal(err)
		}
		redistest.Eventually(t, 2*time.Minute, func() bool {
			return strings.Contains(next.errs.String(), "rules changed")
		}, "the file is not read")
		before := asked.Load()
		redistest.Eventually(t, 2*time.Minute, func() bool { return asked.Load() > before+100 }, "nobody answers")
		former = next
	}
	close(over)
	all.Wait()
	former.stop(t)
}

// TestAStartThatFailsLeavesTheSocket: a second start took the socket over, found the operator's address in use, and
// ended. Nobody was asked any longer.
func TestAStartThatFailsLeavesTheSocket(t *testing.T) {
	dir, file := folder(t)
	bad, socket := filepath.Join(dir, "bad.yaml"), filepath.Join(dir, "a")
	if err := os.WriteFile(bad, []byte(rules[1:20]), 0o600); err != nil {
		t.Fatal(err)
	}
	running := start(t, nil, "-from", "nginx", "-rules", file, "-listen", "unix:"+socket, "-embedded")
	for i, more := range [][]string{
		{"-rules", bad, "-embedded"}, {"-rules", file, "-redis", "redis://127.0.0.1:none"},
		{"-rules", file, "-embedded", "-operator", "203.0.113.1:9100"},
		{"-rules", file, "-embedded", "-operator", "127.0.0.1:99999"},
		{"-rules", file, "-embedded", "-prefix", "{a}"},
	} {
		args := append([]string{"serve", "-from", "nginx", "-listen", "unix:" + socket}, more...)
		if a := clitest.Run(t, nil, "", args...); a.Code != 2 {
			t.Errorf("%v: exit code %d, %s", args, a.Code, a.Errs)
		}
		wantLeft(t, client(socket), 99_999-i)
	}
	running.stop(t)
}

// TestTheNextProcessHasTheSameCommand: the operator's address is its own when the former process has ended.
func TestTheNextProcessHasTheSameCommand(t *testing.T) {
	dir, file := folder(t)
	socket, pages := filepath.Join(dir, "a"), clitest.FreeAddress(t)
	args := []string{"-from", "nginx", "-rules", file, "-listen", "unix:" + socket, "-embedded",
		"-operator", pages}
	former := start(t, nil, args...)
	next := start(t, nil, args...)
	if errs := next.errs.String(); !strings.Contains(errs, "another process has the operator's address") {
		t.Error(errs)
	}
	wantLeft(t, client(socket), 99_999)
	former.stop(t)
	redistest.Eventually(t, 2*time.Minute, func() bool {
		return strings.Contains(next.errs.String(), "url=http://"+pages)
	}, "the address is not taken")
	resp, err := http.Get("http://" + pages + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	wantLeft(t, client(socket), 99_998)
	next.stop(t)
}

// TestTheFormerProcessIsAskedAgain: the next one is ended or killed, or the socket is removed. While the next one
// lives, the former one leaves the socket alone.
//
// Promise (Gateway): A former process that still runs is asked again when the next one ends.
func TestTheFormerProcessIsAskedAgain(t *testing.T) {
	dir, file := folder(t)
	socket := filepath.Join(dir, "a")
	args := []string{"-from", "nginx", "-rules", file, "-listen", "unix:" + socket, "-embedded"}
	former := start(t, nil, args...)
	wantLeft(t, client(socket), 99_999)
	followed := func(end func(next *running)) {
		next := start(t, nil, args...)
		left, until := 100_000, time.Now().Add(time.Second)
		redistest.Eventually(t, 2*time.Minute, func() bool {
			left--
			wantLeft(t, client(socket), left)
			return t.Failed() || time.Now().After(until)
		}, "a second is over")
		end(next)
	}
	for i, event := range []func(){
		func() { followed(func(next *running) { next.stop(t) }) },
		func() { followed(func(next *running) { _, _ = next.Process.Kill(), <-next.ended }) },
		func() { _ = os.Remove(socket) },
	} {
		event()
		redistest.Eventually(t, 2*time.Minute, func() bool {
			return strings.Count(former.errs.String(), "has taken it back") == i+1
		}, "nobody is asked")
		wantLeft(t, client(socket), 99_998-i)
	}
	former.stop(t)
}

// TestServeWithoutRedis: inside the process, and while Redis is away.
func TestServeWithoutRedis(t *testing.T) {
	dir, file := folder(t)
	socket := filepath.Join(dir, "a")
	inside := start(t, nil, "-from", "nginx", "-rules", file, "-listen", "unix:"+socket, "-embedded",
		"-socket-mode", "0600")
	wantLeft(t, client(socket), 99_999)
	if !strings.Contains(inside.errs.String(), "no other process shares its counts") {
		t.Error(inside.errs.String())
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	inside.stop(t)

	nobody := redistest.ClosedAddress(t)
	away := start(t, []string{"REDIS_URL=redis://" + nobody}, "-from", "nginx", "-rules", file,
		"-listen", "unix:"+socket)
	wantLeft(t, client(socket), 99_999) // by the local limit
	away.stop(t)
}

// TestServeUnderSystemd: a socket that it passes, and its notification.
func TestServeUnderSystemd(t *testing.T) {
	dir, file := folder(t)
	socket := filepath.Join(dir, "passed")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	passed, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	at := &net.UnixAddr{Name: filepath.Join(dir, "n"), Net: "unixgram"}
	notified, err := net.ListenUnixgram("unixgram", at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = notified.Close() }()
	heard := func(want string) {
		t.Helper()
		_ = notified.SetReadDeadline(time.Now().Add(2 * time.Minute))
		b := make([]byte, 100)
		if n, err := notified.Read(b); string(b[:n]) != want {
			t.Errorf("%q, %v: want %s", b[:n], err, want)
		}
	}
	child := clitest.Process(t, nil)
	r := &running{Cmd: exec.CommandContext(t.Context(), "sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@"`,
		child.Path, "serve", "-from", "nginx", "-embedded", "-rules", file), ended: make(chan error, 1)}
	r.Env = append(r.Env, child.Env...)
	r.Env = append(r.Env, "NOTIFY_SOCKET="+notified.LocalAddr().String())
	r.ExtraFiles = []*os.File{passed}
	r.run(t)
	heard("READY=1")
	wantLeft(t, client(socket), 99_999)
	r.stop(t)
	heard("STOPPING=1")
	if _, err := os.Stat(socket); err != nil {
		t.Errorf("%v: the socket is systemd's", err)
	}
}

// TestMistakesOfServe: what is said, with exit code 2.
func TestMistakesOfServe(t *testing.T) {
	dir, file := folder(t)
	bad := filepath.Join(dir, "bad.yaml")
	cut := filepath.Join(dir, "cut.yaml")
	for path, text := range map[string]string{bad: strings.Replace(rules, "/: site", "/: sight", 1),
		cut: strings.Replace(rules, "...", "", 1)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const at = "unix:/nowhere/gatehouse.sock"
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no file":          {[]string{"-from", "nginx"}, "-rules is missing"},
		"no proxy":         {[]string{"-rules", file}, "-from is missing"},
		"an unknown proxy": {[]string{"-rules", file, "-from", "apache"}, "use nginx, traefik, caddy, haproxy, envoy"},
		"no Redis":         {[]string{"-rules", file, "-from", "nginx"}, "no Redis is named"},
		"a bad file":       {[]string{"-rules", bad, "-from", "nginx", "-embedded"}, `unknown list of rules "sight"`},
		"a cut file":       {[]string{"-rules", cut, "-from", "nginx", "-embedded"}, `does not end with a line "..."`},
		"no file, dry":     {[]string{"-rules", file + ".none", "-from", "nginx", "-check"}, "no such file"},
		"no folder":        {[]string{"-rules", file, "-from", "nginx", "-embedded", "-listen", at}, "no such file or directory"},
		"no socket":        {[]string{"-rules", file, "-from", "nginx", "-embedded", "-listen", "unix:" + file}, "is there and no socket"},
		"a bad prefix":     {[]string{"-rules", file, "-from", "nginx", "-proxies", "10.0.0.0/33"}, "prefix length out of range"},
		"a bad user":       {[]string{"-rules", file, "-from", "nginx", "-user", "uid"}, "write it as NAME=FIELD"},
		"a public page": {[]string{"-rules", file, "-from", "nginx", "-embedded", "-listen", "127.0.0.1:0", "-operator", ":9100"},
			"name a loopback address"},
		"no path":    {[]string{"-rules", file, "-from", "nginx", "-listen", "unix:"}, "-listen names no path"},
		"an operand": {[]string{file, "-from", "nginx"}, "the file is named with -rules"},
	} {
		t.Run(name, func(t *testing.T) {
			a := clitest.Run(t, nil, "", append([]string{"serve"}, c.args...)...)
			if a.Code != 2 || !strings.Contains(a.Errs, c.want) {
				t.Errorf("exit code %d, %s: want %s", a.Code, a.Errs, c.want)
			}
		})
	}
}

// TestServeChecksItsFile: all mistakes with their lines, also those that gatehouse check does not know, since
// only a gateway has them. It showed the first one, named gatehouse check for the others, and ended with 2.
func TestServeChecksItsFile(t *testing.T) {
	_, file := folder(t)
	bad := clitest.RulesFile(t, strings.NewReplacer("rules:\n", "  sale: {seckill: {}}\nrules:\n",
		"  site:\n", "  site:\n    - {guard: sale, who: {form: name}}\n", "...", "").Replace(rules))
	check := func(file string, more ...string) clitest.Answer {
		return clitest.Run(t, nil, "", append([]string{"serve", "-rules", file, "-from", "caddy"}, more...)...)
	}
	check(file, "-check").Want(t, 0, file+": ok, with 1 route for caddy\n", "")
	a := check(bad, "-check")
	a.Want(t, 1, bad+":7:", "")
	for _, want := range []string{"confirms when the application has answered", "form reads the body",
		bad + `:10: the file does not end with a line "..."`} {
		if !strings.Contains(a.Out, want) {
			t.Errorf("%s: want %s", a.Out, want)
		}
	}
	a = check(bad, "-check", "-json")
	if mistakes := a.JSON(t)["mistakes"].([]any); a.Code != 1 || len(mistakes) != 4 ||
		mistakes[0].(map[string]any)["line"] != 7.0 {
		t.Errorf("%d, %v", a.Code, mistakes)
	}
	if got := check(file, "-check", "-json").JSON(t); len(got["mistakes"].([]any)) != 0 ||
		len(got["routes"].([]any)) != 1 {
		t.Error(got)
	}
	check(bad, "-embedded").Want(t, 2, "", "(gatehouse serve -check shows all of 4 mistakes)")
}

// TestPagesOfAGuardWithTwoRollouts: two lists of rules have the same guard, and each a roll-out of its own. Each
// request of the operator's pages panicked.
func TestPagesOfAGuardWithTwoRollouts(t *testing.T) {
	dir, file := folder(t)
	text := strings.Replace(rules, "routes:\n", `  other:
    - {guard: site, who: ip, rollout: {enforced: 0}}
routes:
  /other: other
`, 1)
	text = strings.Replace(text, "who: ip}", "who: ip, rollout: {enforced: 100}}", 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, nil, "-from", "nginx", "-rules", file, "-listen", "unix:"+filepath.Join(dir, "a"), "-embedded",
		"-operator", "127.0.0.1:0")
	pages := regexp.MustCompile(`url=(http://127[^ \n]+)`).FindStringSubmatch(r.errs.String())
	if pages == nil {
		t.Fatal(r.errs.String())
	}
	for path, want := range map[string]string{"": `"site"`, "site/rollout-other": `"enforced":0`,
		"site/rollout-site": `"enforced":100`} {
		resp, err := http.Get(pages[1] + path)
		if err != nil {
			t.Fatalf("%v: %s", err, r.errs.String())
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
	r.stop(t)
}

// TestASocketThatIsRemovedOftenCostsNothing: each time the process took it back it kept the listener of before.
func TestASocketThatIsRemovedOftenCostsNothing(t *testing.T) {
	dir, file := folder(t)
	socket := filepath.Join(dir, "a")
	r := start(t, nil, "-from", "nginx", "-rules", file, "-listen", "unix:"+socket, "-embedded")
	open := func() int {
		all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.Process.Pid))
		if err != nil {
			redistest.Lacks(t, "the files that a process has open: "+err.Error())
		}
		return len(all)
	}
	wantLeft(t, client(socket), 99_999)
	before := open()
	for i := range 5 {
		if err := os.Remove(socket); err != nil {
			t.Fatal(err)
		}
		redistest.Eventually(t, 2*time.Minute, func() bool {
			_, err := os.Stat(socket)
			return err == nil
		}, "the socket is gone")
		c := client(socket)
		wantLeft(t, c, 99_998-i)
		c.CloseIdleConnections()
	}
	redistest.Eventually(t, 2*time.Minute, func() bool { return open() <= before+1 }, "files stay open")
	r.stop(t)
}
