package script_test

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestUndosEndWhenTheClientIsClosed: behind an open breaker, calls that were undone by a client which the
// application had closed went on for ten minutes, and Drain waited for them.
func TestUndosEndWhenTheClientIsClosed(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{
		Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED },
		Addr:   "127.0.0.1:6379", MaxRetries: -1, DialerRetries: 1,
	})
	e := core.New(rdb, core.WithObserver(guardtest.Ignore{}))
	base, down := kit.Register(e, "own", "own"), errors.New("down")
	for range 10 {
		base.UndoLater(down, func(ctx context.Context) error {
			_, err := e.Run(ctx, undoScript, []string{"{k}"})
			return err
		})
	}
	redistest.Eventually(t, time.Minute, func() bool {
		_, err := e.Run(t.Context(), undoScript, []string{"{k}"})
		return errors.Is(err, core.ErrBreakerOpen)
	}, "the breaker is open")
	if err := rdb.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := core.Drain(ctx); err != nil {
		t.Error(err)
	}
}

var undoScript = script.New("undo", "return redis.call('DEL', KEYS[1])", script.Idempotent)
