package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/ops/config"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestRulesChangeWhileRequestsGoOn: a server over TCP, a hundred changes of the file that it follows, bad
// files among them, and no wrong answer.
func TestRulesChangeWhileRequestsGoOn(t *testing.T) {
	text, err := os.ReadFile("rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	generous := strings.NewReplacer("5/10s, 100/min", "2_000/10s, 9_000/min", "max: 2", "max: 50").
		Replace(string(text))
	write(generous)
	changes := make(chan config.State, 1)
	gate := guardtest.NewEngine(redistest.Single(t), core.WithLogger(slog.New(slog.DiscardHandler)))
	app, err := newApp(t.Context(), gate, path, config.WithInterval(10*time.Millisecond),
		config.WithNotify(func(s config.State) { changes <- s }))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(app)
	defer server.Close()
	get := func(path string) (int, string) {
		answer, err := server.Client().Get(server.URL + path)
		if err != nil {
			return 0, err.Error()
		}
		defer func() { _ = answer.Body.Close() }()
		body, _ := io.ReadAll(answer.Body)
		return answer.StatusCode, string(body)
	}
	var wrong, sent atomic.Int64
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range 2 {
		all.Add(1)
		go func() {
			defer all.Done()
			for {
				select {
				case <-stop:
					return
				default:
				}
				if status, body := get("/downloads/book"); status != 200 && status != http.StatusTooManyRequests ||
					status == 200 && body != "this is book\n" {
					wrong.Add(1)
				}
				sent.Add(1)
			}
		}()
	}
	for i := range 100 {
		if i%10 == 9 {
			write(strings.Replace(generous, "who: ip", "who: ipp", 1))
			if s := <-changes; s.Err == nil {
				t.Errorf("change %d: a bad file is in force", i)
			}
			continue
		}
		write(fmt.Sprintf("%s# %d\n", generous, i) + strings.Repeat("\n", i%3))
		if s := <-changes; s.Err != nil {
			t.Errorf("change %d: %v", i, s.Err)
		}
	}
	close(stop)
	all.Wait()
	if wrong.Load() > 0 || sent.Load() == 0 {
		t.Errorf("%d of %d answers are wrong", wrong.Load(), sent.Load())
	}
	write(strings.Replace(generous, "sliding_window", "sliding_windw", 1))
	<-changes
	_, body := get("/rules")
	var state struct{ Mistakes string }
	err = json.Unmarshal([]byte(body), &state)
	if err != nil || !strings.Contains(state.Mistakes, "did you mean") {
		t.Errorf("/rules: %v: %s", err, body)
	}
	write(strings.Replace(string(text), "5/10s", "1/h, 5/10s", 1))
	<-changes
	if status, _ := get("/"); status != http.StatusTooManyRequests { // what was used before counts
		t.Errorf("with a limit of one per hour: %d", status)
	}
}

// TestTheFileIsGood: as it is in the folder.
func TestTheFileIsGood(t *testing.T) {
	if _, err := config.Load("rules.yaml"); err != nil {
		t.Error(err)
	}
}
