package edge

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

const (
	guide = "../../../../docs/guides/bans-at-the-edge.md"
	shown = "/var/lib/gatehouse/banned" // the file in the guide
)

// nginx is a running nginx with the configuration of the guide.
type nginx struct {
	t       *testing.T
	dir     string
	url     string
	words   []string // of its command line
	follows []string // the command of the guide
}

// prepareNginx takes the configuration and the command from the guide, the former changed by pairs of an old
// and a new text.
func prepareNginx(t *testing.T, file, app string, change ...string) *nginx {
	t.Helper()
	redistest.Need(t, "nginx")
	page, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```nginx\n(.*?)```").FindStringSubmatch(string(page))
	command := regexp.MustCompile("(?m)^gatehouse bans shut (.*) -exec '(.*)'(.*)$").
		FindStringSubmatch(string(page))
	if block == nil || strings.Count(block[1], "\n") > 15 || command == nil {
		t.Fatalf("%s: the configuration is %q, want 15 lines at most; the command is %q", guide, block, command)
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	_ = listener.Close()
	n := &nginx{t: t, dir: t.TempDir(), url: "http://" + addr}
	conf := block[1]
	for i, pairs := 0, append([]string{shown, file, "listen 80", "listen " + addr,
		"http://127.0.0.1:8080", app}, change...); i < len(pairs); i += 2 {
		if !strings.Contains(conf, pairs[i]) {
			t.Fatalf("%s: the configuration has no %q", guide, pairs[i])
		}
		conf = strings.ReplaceAll(conf, pairs[i], pairs[i+1])
	}
	own := fmt.Sprintf("daemon off; worker_processes 1; pid %s/pid; error_log stderr warn; events {}\n"+
		"http {\naccess_log off;\n", n.dir)
	for _, module := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		own += fmt.Sprintf("%s_temp_path %s/%[1]s;\n", module, n.dir)
	}
	path := filepath.Join(n.dir, "nginx.conf")
	if err := os.WriteFile(path, []byte(own+conf+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.words = []string{redistest.Path("nginx"), "-p", n.dir, "-c", path}
	reload := strings.Replace(command[2], "nginx", strings.Join(n.words, " "), 1)
	n.follows = strings.Fields(strings.ReplaceAll("bans shut "+command[1]+command[3], shown, file))
	n.follows = append(n.follows, "-exec", reload)
	return n
}

// start starts it, and stops it when the test ends.
func (n *nginx) start() {
	n.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, n.words[0], n.words[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // so that it ends its workers
	cmd.WaitDelay = patience
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		stop()
		_ = cmd.Wait()
		if n.t.Failed() || strings.Contains(said.String(), "[emerg]") {
			n.t.Errorf("nginx wrote %s", said.String())
		}
	})
	redistest.Eventually(n.t, patience, func() bool { return n.get("") != 0 }, "nginx answers")
}

// get returns the status of a request with a key, or 0.
func (n *nginx) get(key string) int {
	r, err := http.NewRequestWithContext(n.t.Context(), http.MethodGet, n.url, nil)
	if err != nil {
		n.t.Fatal(err)
	}
	r.Close = true // a connection belongs to a worker of before the reload
	if key != "" {
		r.Header.Set("X-Api-Key", key)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// TestNginxShutsABotOut: the recipe of docs/guides/bans-at-the-edge.md, with a real nginx in front of an
// application.
//
// Promise: Behind `gatehouse bans -follow` nginx refuses a client within a second of its last strike, and
// lets it in within a second of the end of the ban.
func TestNginxShutsABotOut(t *testing.T) {
	t.Parallel()
	redistest.Need(t, "nginx")
	server := redistest.StartServer(t)
	gate := guardtest.NewEngine(backendOf(t, server))
	const length = 2 * time.Second
	guard := bans.New(gate, "shut", bans.Options{Refusals: 3, First: length, Longest: length})
	rule := pipeline.Rule{
		Guard: limit.NewSlidingWindow(gate, "site", limit.Per(1, 50*time.Millisecond)), Bans: guard,
		Who: keyfuncs.IP(keyfuncs.TrustProxies("127.0.0.1"), keyfuncs.ProxyMayBeClient()),
	}
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	app := httptest.NewServer(nethttpmw.HTTP(rule)(handler))
	defer app.Close()
	file := filepath.Join(t.TempDir(), "banned")
	n := prepareNginx(t, file, app.URL)
	f := (&followed{t: t, file: file}).start(environOf(server), n.follows...)
	n.start()
	for try := 1; ; try++ { // a busy machine may delay one
		f.eventually(func() bool { return n.get("") == http.StatusForbidden }, "nginx refuses the bot")
		now := time.Now()
		status, err := guard.Status(t.Context(), core.Attempt{Actor: "127.0.0.1"})
		if err != nil {
			t.Fatal(err)
		}
		began := now.Add(status.Left - length) // too early if the ban is over
		f.eventually(func() bool { return n.get("") == http.StatusOK }, "nginx lets the bot in")
		took, lasted := now.Sub(began), time.Since(began)
		t.Logf("refused %v after the last strike, let in after %v", took, lasted)
		if status.Left > 0 && lasted < length {
			t.Errorf("a ban of %v lasted %v", length, lasted)
		}
		if status.Left > 0 && took <= time.Second && lasted <= length+time.Second {
			break
		}
		if try == 5 {
			t.Fatal("nginx was never within a second")
		}
	}
	f.eventually(func() bool { return n.get("") == http.StatusForbidden }, "nginx refuses the bot again")
	if code := f.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	f.eventually(func() bool { return n.get("") != http.StatusForbidden }, "nginx is told of the end")
	if said := f.errs.String(); strings.Count(said, "tried again") > 1 { // one if it was sooner there than nginx
		t.Errorf("%q", said)
	}
}

// TestNginxReadsWhatUsersChoose: each actor of a map is refused, and nobody else, whatever characters they have.
func TestNginxReadsWhatUsersChoose(t *testing.T) {
	t.Parallel()
	redistest.Need(t, "nginx")
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer app.Close()
	p := formatNamed("nginx-map").page(bansOf(evil...), len(evil), time.Now())
	file := filepath.Join(t.TempDir(), "banned")
	if err := replace(file, p.text); err != nil {
		t.Fatal(err)
	}
	n := prepareNginx(t, file, app.URL, "geo $banned", "map_hash_bucket_size 128;\nmap $http_x_api_key $banned")
	n.start()
	tried := 0
	for actor := range inPage(t, formatNamed("nginx-map"), p.text) {
		ascii := !strings.ContainsFunc(actor, func(r rune) bool { return r > unicode.MaxASCII })
		if !ascii || strings.TrimSpace(actor) != actor {
			continue // not in a header
		}
		tried++
		if status := n.get(actor); status != http.StatusForbidden {
			t.Errorf("%q: status %d", actor, status)
		}
	}
	for _, key := range []string{"", "ann", "x", "1", "x.example", `\\default`, "0"} {
		if status := n.get(key); status != http.StatusOK {
			t.Errorf("%q, who is not banned: status %d", key, status)
		}
	}
	if tried < 25 {
		t.Errorf("only %d actors were tried", tried)
	}
}
