package embedded_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/core/embedded"
	"github.com/gatehouse-go/gatehouse/core/redpacket"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/testkit/everyguard"
)

// inside returns an engine on a Redis inside the process, which ends with the test.
func inside(t *testing.T) *core.Engine {
	t.Helper()
	rdb, server, err := embedded.Connect("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rdb.Close(); server.Close() })
	return core.New(rdb, core.WithDeadline(time.Minute))
}

// TestEveryGuardWorksInside: each kind of guard allows an attempt on the Redis inside the process, and settles
// it.
//
// Promise: Every guard works on the Redis of package `embedded`.
func TestEveryGuardWorksInside(t *testing.T) {
	for folder, guard := range everyguard.On(inside(t)) {
		ctx, a := t.Context(), core.Attempt{Actor: "ann", Resource: "it", Item: "red", ID: "1"}
		switch g := guard.(type) {
		case interface {
			Open(ctx context.Context, item string, sale seckill.Sale) (bool, error)
		}:
			if _, err := g.Open(ctx, "it", seckill.Sale{Stock: 10}); err != nil {
				t.Fatalf("%s: %v", folder, err)
			}
		case *redpacket.Guard:
			packet := redpacket.Packet{Total: 10, Shares: 2, Expires: time.Now().Add(time.Hour)}
			if _, err := g.Create(ctx, "it", packet); err != nil {
				t.Fatalf("%s: %v", folder, err)
			}
		}
		d, err := guard.Check(ctx, a)
		if err != nil || !d.Allowed {
			t.Errorf("%s: %+v, %v", folder, d, err)
			continue
		}
		if err := guard.Settle(ctx, d, core.Commit); err != nil {
			t.Errorf("%s is not settled: %v", folder, err)
		}
	}
}

// TestTheQueueWorksInside: a task that is due runs.
func TestTheQueueWorksInside(t *testing.T) {
	queue := delay.New(inside(t), "mails", delay.Options{})
	if _, err := queue.Schedule(t.Context(), "welcome", time.Now().Add(-time.Second), nil); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	ran := ""
	err := delay.Work(ctx, queue, func(_ context.Context, task delay.Task) error {
		ran = task.ID
		stop()
		return nil
	}, delay.WorkOptions{})
	if ran != "welcome" {
		t.Errorf("ran %q, %v", ran, err)
	}
}

// TestOneLineSaysThatCountsAreLost: a program that was meant for a real Redis, and has no REDIS_URL, must not
// look like one that has it.
func TestOneLineSaysThatCountsAreLost(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	rdb := embedded.Unless("")
	defer rdb.Close()
	if err := rdb.Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
	text := log.String()
	if strings.Count(text, "\n") != 1 || !strings.Contains(text, "lost when this one ends") {
		t.Errorf("logged %q", text)
	}
	log.Reset()
	other := embedded.Unless("redis://127.0.0.1:1/3")
	defer other.Close()
	if o := other.Options(); o.Addr != "127.0.0.1:1" || o.DB != 3 || !o.ContextTimeoutEnabled {
		t.Errorf("%+v", o)
	}
	if log.Len() > 0 {
		t.Errorf("logged %q about the Redis of a URL", log.String())
	}
}

// TestABadURLSaysWhatToWrite, and shows nothing of a password: go-redis and net/url quote parts of a URL.
func TestABadURLSaysWhatToWrite(t *testing.T) {
	for _, url := range []string{
		"127.0.0.1:6379", "localhost", "http://127.0.0.1:6379", "redis://:pa#secret@127.0.0.1", "redis://:secret/x@h:1",
		"redis://127.0.0.1/secret", "user:secret@127.0.0.1:6379", "redis://127.0.0.1?secret=1", "secret://h", "unix://",
		"redis://h:1/0?db=secret", " redis://h",
	} {
		_, _, err := embedded.Connect(url)
		if err == nil || !strings.Contains(err.Error(), "write it as redis://user:password@127.0.0.1:6379/0") ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
	defer func() {
		if said, _ := recover().(string); !strings.Contains(said, "write it as redis://") {
			t.Errorf("the panic says %q", said)
		}
	}()
	embedded.Unless("localhost")
}

// TestARedisThatIsDownFailsAtOnce, and the error says so: calls failed with "context deadline exceeded" after a
// second.
func TestARedisThatIsDownFailsAtOnce(t *testing.T) {
	rdb := embedded.Unless("redis://127.0.0.1:1") // tcpmux; nothing listens there
	defer rdb.Close()
	sale := seckill.New(core.New(rdb), "sale", seckill.Options{})
	_, err := sale.Open(t.Context(), "tv", seckill.Sale{Stock: 1})
	const want = "redis at 127.0.0.1:1 refused the connection: start it there, or correct the address"
	if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestOnlyProgramsThatImportItCompileARedis: the library does not carry a Redis, except this package and
// gatehousetest, which tests import.
func TestOnlyProgramsThatImportItCompileARedis(t *testing.T) {
	t.Parallel()
	const format = `{{$importer := .ImportPath}}{{range .Imports}}{{if eq . "github.com/alicebob/miniredis/v2"}}` +
		`{{$importer}}{{"\n"}}{{end}}{{end}}`
	output, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", format, "../../...").Output()
	if err != nil {
		t.Fatal(err)
	}
	importers := ""
	for line := range strings.Lines(string(output)) {
		inner := strings.TrimPrefix(strings.TrimSpace(line), "github.com/gatehouse-go/gatehouse/")
		if !strings.HasPrefix(inner, "internal/testkit/redistest") && !strings.HasPrefix(inner, "examples/") {
			importers += inner + "\n"
		}
	}
	if importers != "core/embedded\ngatehousetest\n" {
		t.Errorf("these import miniredis, want core/embedded and gatehousetest alone:\n%s", importers)
	}
	output, err = exec.CommandContext(t.Context(), "go", "list", "-deps", "../../ginmw", "../../echomw",
		"../../nethttpmw", "../../ops/config", "../../pipeline/deferred").Output()
	if err != nil || strings.Contains(string(output), "miniredis") {
		t.Errorf("one of them compiles miniredis: %v", err)
	}
}
