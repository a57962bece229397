package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/timed"
)

// expected has the output of each example, in order.
var expected = []string{
	`(?s)^HTTP/1.1 429 .*Retry-After: ([1-9]|[1-5][0-9]|60)\r\n.*"reason":"limited"`,
	`(?s)^HTTP/1.1 201 .*{"choice":"red","poll":"final","user":"alice"}`,
	`(?s)^HTTP/1.1 409 .*"reason":"duplicate","choices":\["red"\]`,
	`^{"poll":"final","tally":{"blue":0,"green":0,"red":1}}`,
	`(?s)^HTTP/1.1 201 .*"reservation":"buyer1\|order-1","state":"sold".*` +
		`HTTP/1.1 201 .*"reservation":"buyer1\|order-1","state":"sold"`,
	`(?s)^HTTP/1.1 409 .*"reason":"duplicate"`,
	`^ *100 201\n *100 409\n$`,
	`^{"item":"ticket","stock":100,"left":0,"held":0,"sold":100}`,
	`^ *2 200\n *1 429\n$`,
	`^ *1 200\n *1 409\n$`,
}

func TestExamplesPrintWhatTheyAnnounce(t *testing.T) {
	redistest.LeftToCI(t)
	redistest.Need(t, "bash", "curl", "seq", "xargs", "sort", "uniq")
	if len(expected) != len(examples) {
		t.Fatalf("%d examples, %d expected outputs", len(examples), len(expected))
	}
	timed.Test(t, 500*time.Millisecond, examplesPrint) // an export takes three seconds
}

func examplesPrint(t *timed.T) {
	server := httptest.NewServer(start(t, redistest.Single(t), limit.PerMinute(100),
		guardtest.WithClock(guardtest.NewClock()))) // however long a hundred requests take
	defer server.Close()
	for i, e := range examples {
		line := strings.ReplaceAll(e.line, "BASE", server.URL)
		if !strings.Contains(welcome(server.URL, false, false), "\n"+line+"\n") {
			t.Errorf("not in the welcome text: %s", line)
		}
		got, err := exec.CommandContext(t.Context(), "bash", "-c", line).Output()
		if err != nil || !regexp.MustCompile(expected[i]).Match(got) {
			t.Fatalf("%s\n%s\nprinted %v:\n%s", e.expect, line, err, got)
		}
	}
}

func TestRunErrorsNameTheRemedy(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	closed := redistest.ClosedAddress(t)

	for _, c := range []struct {
		name, addr, redisURL string
		want                 []string
	}{
		{"port taken", taken.Addr().String(), "", []string{"in use", "ADDR=127.0.0.1:0"}},
		{"no address", "8080", "", []string{"missing port", "ADDR=127.0.0.1:0"}},
		{"no Redis there", "127.0.0.1:0", "redis://" + closed, []string{closed, "refused", "leave REDIS_URL out"}},
		{"no Redis scheme", "127.0.0.1:0", "http://:secret@127.0.0.1", []string{"REDIS_URL", "redis://"}},
		{"not a URL", "127.0.0.1:0", "redis://:secret@127.0.0.1:port", []string{"REDIS_URL", "redis://"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var out bytes.Buffer
			err := run(ctx, &out, c.addr, c.redisURL)
			if err == nil || ctx.Err() != nil {
				t.Fatalf("run: %v, want an error at once", err)
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not contain %q", err, part)
				}
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("%q contains the password", err)
			}
			if out.Len() > 0 {
				t.Errorf("run printed %q", &out)
			}
		})
	}
}

func TestRunServesUntilItIsStopped(t *testing.T) {
	for _, redisURL := range []string{"", "redis://" + miniredis.RunT(t).Addr()} {
		for start, goesOn := range []bool{false, redisURL != ""} {
			t.Run(fmt.Sprintf("REDIS_URL=%q start %d", redisURL, start+1), func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				var out lockedBuffer
				ended := make(chan error, 1)
				go func() { ended <- run(ctx, &out, "127.0.0.1:0", redisURL) }()
				redistest.Eventually(t, time.Minute, func() bool { return out.String() != "" }, "the demo is ready")

				if got := strings.Contains(out.String(), "earlier start"); got != goesOn {
					t.Errorf("the text mentions an earlier start: %t, want %t", got, goesOn)
				}
				base := regexp.MustCompile(`http://[0-9.:]+`).FindString(out.String())
				answer, err := http.Get(base + "/sales/ticket")
				if err != nil {
					t.Fatal(err)
				}
				answer.Body.Close()
				if answer.StatusCode != http.StatusOK {
					t.Errorf("status %d", answer.StatusCode)
				}
				http.DefaultClient.CloseIdleConnections()

				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func TestBrowsersCanOpenTheBaseURL(t *testing.T) {
	for _, c := range []struct {
		addr net.TCPAddr
		want string
	}{
		{net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080}, "http://127.0.0.1:8080"},
		{net.TCPAddr{IP: net.IPv6loopback, Port: 8080}, "http://[::1]:8080"},
		{net.TCPAddr{IP: net.IPv4zero, Port: 8080}, "http://localhost:8080"},
		{net.TCPAddr{IP: net.IPv6unspecified, Port: 8080}, "http://localhost:8080"},
	} {
		if got := baseURL(&c.addr); got != c.want {
			t.Errorf("%v: %s, want %s", &c.addr, got, c.want)
		}
	}
}

// lockedBuffer is a buffer for concurrent reads and writes.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
