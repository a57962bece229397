package core_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
)

// TestDrainOfAnEngineDoesNotWaitForOthers: Drain is of the whole process, so an application with two engines
// waited for the Redis that was away, and a test's bubble for what other tests had left.
func TestDrainOfAnEngineDoesNotWaitForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away, near := engineThatNobodyCalls(t), engineThatNobodyCalls(t)
		ofAway, ofNear := kit.Register(away, "own", "own"), kit.Register(near, "own", "own")
		lost, begun := errors.New("no answer"), time.Now()
		ofAway.UndoLater(lost, func(context.Context) error {
			if time.Since(begun) < time.Minute {
				return lost
			}
			return nil
		})
		ofNear.UndoLater(lost, func(context.Context) error { <-time.After(time.Second); return nil })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := near.Drain(ctx); err != nil || near.Pending() != 0 || time.Since(begun) < time.Second {
			t.Errorf("of the engine with a Redis: %v after %v, %d pending", err, time.Since(begun), near.Pending())
		}
		if err := away.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) || away.Pending() != 1 {
			t.Errorf("of the other engine: %v, %d pending", err, away.Pending())
		}
		if err := away.Drain(t.Context()); err != nil || time.Since(begun) < time.Minute {
			t.Errorf("of the other engine: %v after %v", err, time.Since(begun))
		}
	})
}

// engineThatNobodyCalls returns an engine that has a client but no connection.
func engineThatNobodyCalls(t *testing.T) *core.Engine {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	return core.New(rdb)
}
