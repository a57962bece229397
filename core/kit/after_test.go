package kit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
)

// TestDrainHurriesWhatIsDueLater: units that a process has fetched for a part of a day would keep it from
// ending for as long. A Drain of one engine leaves the others alone.
func TestDrainHurriesWhatIsDueLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		one, other := engineThatNobodyCalls(t), engineThatNobodyCalls(t)
		after := func(e *core.Engine) <-chan time.Duration {
			ran := make(chan time.Duration, 1)
			b := kit.Register(e, "own", "own")
			b.After(time.Hour, func(context.Context) { ran <- time.Since(begun) })
			return ran
		}
		first, second := after(one), after(other)
		if err := one.Drain(t.Context()); err != nil || time.Since(begun) > time.Minute || len(first) != 1 {
			t.Errorf("drain: %v after %v, %d have run", err, time.Since(begun), len(first))
		}
		if len(second) != 0 {
			t.Error("what another engine has was hurried")
		}
		if at := <-second; at != time.Hour {
			t.Errorf("without a Drain it ran after %v", at)
		}
		synctest.Wait()
		if n := other.Pending(); n != 0 {
			t.Errorf("%d pending", n)
		}
	})
}

// engineThatNobodyCalls returns an engine that has a client but no connection.
func engineThatNobodyCalls(t *testing.T) *core.Engine {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	return core.New(rdb)
}
