package attack

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/clitest"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

func TestMain(m *testing.M) { clitest.Main(m, Command) }

// guarded serves a handler behind a limit.
func guarded(t *testing.T, who keyfuncs.Func, limits ...limit.Limit) string {
	t.Helper()
	gate := core.NewMemory(core.WithLogger(slog.New(slog.DiscardHandler)))
	rule := pipeline.Rule{Who: who, Guard: limit.NewSlidingWindow(gate, "site", limits[0], limits[1:]...)}
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	server := httptest.NewServer(nethttpmw.HTTP(rule)(ok))
	t.Cleanup(server.Close)
	return server.URL
}

func TestAttackOnALimitThatHolds(t *testing.T) {
	t.Parallel()
	url := guarded(t, keyfuncs.IP(), limit.PerSecond(5))
	a := clitest.Run(t, nil, "", "attack", url, "-n", "200", "-json", "-timeout", "1m")
	got := a.JSON(t)
	edge, _ := got["edge"].(map[string]any)
	if a.Code != 0 || edge["limit"] != 5.0 || edge["source"] != "RateLimit-Policy" ||
		edge["worst"].(float64) > 5 ||
		len(got["problems"].([]any)) != 0 {
		t.Errorf("exit code %d: %v, %q", a.Code, got, a.Errs)
	}
}

func TestAttackStopsAtItsBound(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer server.Close()
	clitest.Run(t, nil, "", "attack", server.URL, "-race", "-n", "60", "-c", "256", "-timeout", "1m").
		Want(t, 0, "all requests are the same: write {n}", "")
	if n := requests.Load(); n != 60 {
		t.Errorf("%d requests, want the bound of 60", n)
	}
	clitest.Run(t, nil, "", "attack", server.URL, "-timeout", "1m").
		Want(t, 2, "names no limit in RateLimit-Policy", "ended early")
}

func TestAttackFindsAForgedHeaderThatChangesTheKey(t *testing.T) {
	t.Parallel()
	trusting := keyfuncs.IP(keyfuncs.TrustProxies("127.0.0.0/8"), keyfuncs.ProxyMayBeClient())
	a := clitest.Run(t, nil, "", "attack", "-timeout", "1m", "-spoof", guarded(t, trusting, limit.PerHour(5)))
	a.Want(t, 1, "forged         X-Forwarded-For    changes the key (200)\n", "")
	holds := guarded(t, keyfuncs.IP(), limit.PerHour(5))
	a = clitest.Run(t, nil, "", "attack", "-timeout", "1m", "-spoof", holds)
	a.Want(t, 0, "forged         X-Forwarded-For    ignored (429)\n", "")
}

func TestAttackCountsWhatASaleSells(t *testing.T) {
	t.Parallel()
	var left atomic.Int64
	left.Store(10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.Header.Get("X-User") == "" || left.Add(-1) < 0 {
			w.WriteHeader(http.StatusConflict)
		}
	}))
	defer server.Close()
	race := func(stock string) clitest.Answer {
		return clitest.Run(t, nil, "", "attack", "-timeout", "1m", "-race", "-X", "POST", "-H", "X-User: u{n}",
			"-n", "100", "-stock", stock, server.URL)
	}
	race("10").Want(t, 0, "sold           10 of 10, and 0 replays\n", "")
	left.Store(10)
	race("9").Want(t, 1, "PROBLEM        sold 10 of 9 units\n", "")
}

func TestAnInterruptedAttackReportsWhatItFound(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTooManyRequests)
		select {
		case asked <- struct{}{}:
		default:
		}
	}))
	defer server.Close()
	for range 10 {
		cmd := clitest.Process(t, nil, "attack", server.URL, "-limit", "5/min")
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		<-asked // it waits for the end of the window now, when it has the answer
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		clitest.Answer{Code: cmd.ProcessState.ExitCode(), Out: out.String(), Errs: errs.String()}.
			Want(t, 2, "ended early    interrupted\n", "gatehouse attack: interrupted\n")
		if strings.Contains(out.String(), "requests       1, of which 0 were admitted\n") {
			return
		}
		if !strings.Contains(out.String(), "requests       0") { // else the answer was late
			t.Fatal(out.String())
		}
	}
	t.Error("it never has the answer")
}
