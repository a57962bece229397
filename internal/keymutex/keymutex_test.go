package keymutex

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// TestMutex: one at a time for each key, and nothing is left behind.
func TestMutex(t *testing.T) {
	var m Mutex[int]
	lock := func(ctx context.Context, key string) *Held[int] {
		held, err := m.Lock(ctx, key)
		if err != nil {
			t.Error(err)
		}
		return held
	}
	var inside, most atomic.Int64
	var wait sync.WaitGroup
	sum := 0
	for range 50 {
		wait.Go(func() {
			held := lock(t.Context(), "a")
			most.Store(max(most.Load(), inside.Add(1)))
			sum++
			inside.Add(-1)
			held.Unlock()
		})
	}
	wait.Wait()
	if most.Load() != 1 || sum != 50 {
		t.Errorf("%d at once, %d in all", most.Load(), sum)
	}
	mine, other := lock(t.Context(), "a"), lock(t.Context(), "b")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Lock(gone, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	mine.Unlock()
	other.Unlock()
	if len(m.keys) != 0 {
		t.Errorf("%d keys are left", len(m.keys))
	}
}

// TestMutexHandsTheValueOn: a caller that waits finds what the one before it has left; a caller that comes
// later does not.
func TestMutexHandsTheValueOn(t *testing.T) {
	var m Mutex[string]
	first, err := m.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	first.Value = "left"
	found := make(chan string)
	go func() {
		second, err := m.Lock(context.Background(), "a")
		if err != nil {
			found <- err.Error()
			return
		}
		defer close(found)
		defer second.Unlock()
		found <- second.Value
	}()
	for users := 1; users < 2; runtime.Gosched() { // until the other waits
		m.mu.Lock()
		users = first.users
		m.mu.Unlock()
	}
	first.Unlock()
	if got := <-found; got != "left" {
		t.Errorf("the second found %q", got)
	}
	<-found
	third, err := m.Lock(t.Context(), "a")
	if err != nil || third.Value != "" {
		t.Errorf("the third found %q, %v", third.Value, err)
	}
}
