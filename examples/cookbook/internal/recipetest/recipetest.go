// Package recipetest has what the tests of the cookbook share.
package recipetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// Forgetful returns an engine whose servers forget all scripts before every EVALSHA.
func Forgetful(t *testing.T, b redistest.Backend) *core.Engine {
	t.Helper()
	return guardtest.NewEngineOver(b, forgetful{b.Client, func() {
		if err := b.ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error {
			return c.ScriptFlush(ctx).Err()
		}); err != nil {
			t.Error(err)
		}
	}})
}

type forgetful struct {
	redis.UniversalClient
	flush func()
}

func (c forgetful) Process(ctx context.Context, cmd redis.Cmder) error {
	if cmd.Name() == "evalsha" {
		c.flush()
	}
	return c.UniversalClient.Process(ctx, cmd)
}

// Lossy returns an engine on connections of its own, on which each reply to a script is lost with probability
// p. The server has run the script by then. The client sends a command up to nine times. Lossy prints the
// seed.
func Lossy(t *testing.T, b redistest.Backend, p float64) (*core.Engine, *redistest.Faults) {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("replies are lost by the seed %d", seed)
	faults := redistest.NewFaults(t)
	options := b.Options()
	options.Dialer = faults.Dial
	options.MaxRetries, options.MinRetryBackoff, options.MaxRetryBackoff = 8, -1, -1
	client := redis.NewUniversalClient(options)
	t.Cleanup(func() { _ = client.Close() })
	faults.SwallowEvery("eval", p, rand.New(rand.NewPCG(seed, 0)))
	return guardtest.NewEngineOver(b, client), faults
}

// Retry calls f until it returns no error, as a client does that repeats a request with the same operation
// ID. A refusal fails the test. Retry must be called from the test's own goroutine.
func Retry(t *testing.T, f func() error) {
	t.Helper()
	redistest.Eventually(t, 2*time.Minute, func() bool {
		err := f()
		for _, refusal := range []error{core.ErrInvalid, core.ErrNotFound, core.ErrNotNow} {
			if errors.Is(err, refusal) {
				t.Fatal(err)
			}
		}
		return err == nil
	}, "a call without an error")
}

// Declared is a client that notes the keys that scripts were given.
type Declared struct {
	redis.UniversalClient
	mu   sync.Mutex
	keys map[string]bool
}

// NewDeclared returns an engine and the client that notes the keys of its scripts.
func NewDeclared(b redistest.Backend) (*core.Engine, *Declared) {
	d := &Declared{UniversalClient: b.Client, keys: map[string]bool{}}
	return guardtest.NewEngineOver(b, d), d
}

// Process notes the keys of a script, and sends it.
func (d *Declared) Process(ctx context.Context, cmd redis.Cmder) error {
	if args := cmd.Args(); strings.HasPrefix(cmd.Name(), "eval") {
		d.mu.Lock()
		for _, key := range args[3 : 3+args[2].(int)] {
			d.keys[key.(string)] = true
		}
		d.mu.Unlock()
	}
	return d.UniversalClient.Process(ctx, cmd)
}

// WantAll wants each key that the test has left to have been given to a script in KEYS.
func (d *Declared) WantAll(t *testing.T, b redistest.Backend) {
	t.Helper()
	left := Keys(t, b)
	if len(left) == 0 {
		t.Error("the test has left no keys")
	}
	for _, key := range left {
		if !d.keys[key] {
			t.Errorf("a script wrote %q, which it did not declare", key)
		}
	}
}

// Keys returns the keys of the test.
func Keys(t *testing.T, b redistest.Backend) []string {
	t.Helper()
	var keys []string
	if err := b.ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error {
		some, err := c.Keys(ctx, b.Prefix+"*").Result()
		keys = append(keys, some...)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return keys
}

// Request is one request, and the answer that it must get.
type Request struct {
	Method, Path, User, ID, Body string

	Status int
	Want   string // the body contains this
}

// Send sends requests to a handler one after the other, with the user in X-User and the ID in
// Idempotency-Key. It fails the test where an answer differs.
func Send(t *testing.T, h http.Handler, requests []Request) {
	t.Helper()
	for _, want := range requests {
		status, body := Answer(h, want)
		name := fmt.Sprintf("%s %.60s by %.20q with %.60q", want.Method, want.Path, want.User, want.Body)
		if status != want.Status || !strings.Contains(body, want.Want) {
			t.Errorf("%s: %d %.200q, want %d %q", name, status, body, want.Status, want.Want)
		}
		for _, leak := range []string{"core:", "script", "redis", "ERR"} {
			if strings.Contains(body, leak) {
				t.Errorf("%s: the answer %q shows its cause", name, body)
			}
		}
	}
}

// Answer sends a request and returns the status and the body of the answer.
func Answer(h http.Handler, send Request) (status int, body string) {
	content := io.NopCloser(strings.NewReader(send.Body))
	r := httptest.NewRequestWithContext(context.Background(), send.Method, send.Path, content)
	if send.User != "" {
		r.Header.Set("X-User", send.User)
	}
	if send.ID != "" {
		r.Header.Set("Idempotency-Key", send.ID)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// Broken returns an engine whose Redis answers every script with an error. Nothing is logged.
func Broken(t *testing.T) *core.Engine {
	t.Helper()
	return core.New(guardtest.RefusingServer(t, "-ERR secret of redis\r\n"),
		core.WithLogger(slog.New(slog.DiscardHandler)))
}
