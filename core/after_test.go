package core_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

// TestDrainHurriesWhatIsDueLater: units that a process has fetched for a part of a day would keep it from
// ending for as long. A Drain of one engine leaves the others alone.
func TestDrainHurriesWhatIsDueLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		one, other := engineThatNobodyCalls(t), engineThatNobodyCalls(t)
		after := func(e *core.Engine) <-chan time.Duration {
			ran := make(chan time.Duration, 1)
			e.After(time.Hour, func(context.Context) { ran <- time.Since(begun) })
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
