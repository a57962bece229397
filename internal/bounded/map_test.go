package bounded_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/gatehouse-go/gatehouse/internal/bounded"
)

func put(m *bounded.Map[string, int], key string, value int) {
	shard := m.Of(key)
	shard.Lock()
	defer shard.Unlock()
	shard.Add(key, value)
}

func get(m *bounded.Map[string, int], key string) (value int, ok bool) {
	shard := m.Of(key)
	shard.Lock()
	defer shard.Unlock()
	return shard.Get(key)
}

func TestKeysAreFoundAgain(t *testing.T) {
	m := bounded.New[string, int](1000)
	for i := range 10 {
		put(m, fmt.Sprint("key ", i), i)
	}
	for i := range 10 {
		if value, ok := get(m, fmt.Sprint("key ", i)); value != i || !ok {
			t.Errorf("key %d: %d, %t", i, value, ok)
		}
	}
	if _, ok := get(m, "another"); ok {
		t.Error("a key that nobody has put there is found")
	}
	if n := m.Len(); n != 10 {
		t.Errorf("%d keys, want 10", n)
	}
}

// TestTheLeastUsedKeysAreForgotten: one key is used all the while, and is there after any number of others.
func TestTheLeastUsedKeysAreForgotten(t *testing.T) {
	const size = 4 * bounded.Parts
	m := bounded.New[string, int](size)
	put(m, "used", 1)
	for i := range 100 * size {
		put(m, fmt.Sprint("key ", i), i)
		if value, ok := get(m, "used"); value != 1 || !ok {
			t.Fatalf("the key in use is gone after %d others: %d, %t", i+1, value, ok)
		}
	}
	if n := m.Len(); n != size {
		t.Errorf("%d keys are kept, want %d", n, size)
	}
	if _, ok := get(m, "key 0"); ok {
		t.Error("the oldest key is kept")
	}
}

func TestTheSizeIsRoundedUp(t *testing.T) {
	m := bounded.New[string, int](1)
	for i := range 100 * bounded.Parts {
		put(m, fmt.Sprint("key ", i), i)
	}
	if n := m.Len(); n != bounded.Parts {
		t.Errorf("%d keys are kept, want %d", n, bounded.Parts)
	}
}

func TestASizeThatIsNotPositivePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a map that keeps nothing was made")
		}
	}()
	bounded.New[string, int](0)
}

// TestManyGoroutinesUseAMap is for the race detector, and counts what is added under the locks.
func TestManyGoroutinesUseAMap(t *testing.T) {
	const goroutines, rounds, keys = 8, 500, 10
	m := bounded.New[string, int](1000)
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for i := range rounds {
				key := fmt.Sprint("key ", i%keys)
				shard := m.Of(key)
				shard.Lock()
				value, _ := shard.Get(key)
				shard.Add(key, value+1)
				shard.Unlock()
			}
		})
	}
	all.Wait()
	for i := range keys {
		if value, _ := get(m, fmt.Sprint("key ", i)); value != goroutines*rounds/keys {
			t.Errorf("key %d counts %d, want %d", i, value, goroutines*rounds/keys)
		}
	}
}
