// Package edge_test runs the example: nginx, an application in Python behind it, and the gateway.
package edge_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/proxies"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/timed"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// get returns the status, the body and the field RateLimit.
func get(t testing.TB, url string) (status int, body, limit string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header.Get("RateLimit")
}

// TestTheExampleRuns: what README.md shows. Ctrl-C ends all programs.
func TestTheExampleRuns(t *testing.T) {
	redistest.LeftToCI(t)
	redistest.Need(t, "nginx", "python3")
	timed.Test(t, 30*time.Millisecond, theExampleRuns) // its gateway waits for Redis for 100 ms
}

func theExampleRuns(t *timed.T) {
	port, app := strconv.Itoa(redistest.FreePort(t)), strconv.Itoa(redistest.FreePort(t))
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "./run", port, app)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "REDIS_URL=") })
	var out guardtest.Output
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := redistest.Spawn(cmd); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	redistest.Eventually(t, 2*time.Minute, func() bool {
		select {
		case err := <-ended:
			t.Fatalf("%v: %s", err, out.String())
		default:
		}
		return strings.Contains(out.String(), "ready: http://127.0.0.1:"+port)
	}, "it is not ready")
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := strings.ReplaceAll(string(page), ",\n\"", `,"`) // a body on two guardtest.Output
	for i := range 10 {
		status, body, limit := get(t, "http://127.0.0.1:"+port+"/")
		wantStatus, wantBody := http.StatusOK, "hello from Python\n"
		switch {
		case i >= 9:
			wantStatus, wantBody = http.StatusTooManyRequests, `"reason":"banned"`
		case i >= 5:
			wantStatus, wantBody = http.StatusTooManyRequests, `"reason":"limited"`
		}
		if status != wantStatus || !strings.Contains(body, wantBody) {
			t.Errorf("%d: %d %s: want %d, %s", i, status, body, wantStatus, wantBody)
		}
		if (i == 0 || i == 5) && !strings.Contains(shown, strings.TrimSpace(body)) {
			t.Errorf("README.md does not show %s", body)
		}
		if want := fmt.Sprintf(`"pages";r=%d;`, 4-i); i < 5 && !strings.HasPrefix(limit, want) {
			t.Errorf("%d: RateLimit: %s, want %s", i, limit, want)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("%v: %s", err, out.String())
	}
	for _, port := range []string{port, app} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", "127.0.0.1:"+port)
		if err == nil {
			_ = conn.Close()
			t.Errorf("a program is left on port %s", port)
		}
	}
}

// TestTheConfigurationIsThatOfTheGuide: edge.conf is the first block for nginx.
func TestTheConfigurationIsThatOfTheGuide(t *testing.T) {
	conf, err := os.ReadFile("edge.conf")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(proxies.Guide(t), "```nginx\n"+string(conf)+"```") {
		t.Error("docs/guides/gateway.md has another configuration for nginx")
	}
}
