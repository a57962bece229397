package bounded_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

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

// TestAPartIsAListByUse compares a part with a list of keys, the least recently used one first.
func TestAPartIsAListByUse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 4).Draw(t, "most")
		p := bounded.New[int, int](most * bounded.Parts).Of(0)
		var list, values []int
		drop := func(key int) (found bool, value int) {
			i := slices.Index(list, key)
			if i < 0 {
				return false, 0
			}
			value = values[i]
			list, values = slices.Delete(list, i, i+1), slices.Delete(values, i, i+1)
			return true, value
		}
		for step := range rapid.IntRange(1, 40).Draw(t, "steps") {
			key := rapid.IntRange(0, 5).Draw(t, "key")
			switch rapid.SampledFrom([]string{"add", "get", "remove", "oldest", "sweep"}).Draw(t, "step") {
			case "add":
				p.Add(key, step)
				if found, _ := drop(key); !found && len(list) == most {
					drop(list[0])
				}
				list, values = append(list, key), append(values, step)
			case "get":
				found, want := drop(key)
				if value, ok := p.Get(key); ok != found || value != want {
					t.Fatalf("Get(%d) is %d, %t, want %d, %t", key, value, ok, want, found)
				}
				if found {
					list, values = append(list, key), append(values, want)
				}
			case "remove":
				p.Remove(key)
				drop(key)
			case "oldest":
				k, value, ok := p.RemoveOldest()
				if ok != (len(list) > 0) || ok && (k != list[0] || value != values[0]) {
					t.Fatalf("RemoveOldest is %d, %d, %t of %d with %d", k, value, ok, list, values)
				}
				drop(k)
			case "sweep":
				for k := range p.All() {
					if k%2 == key%2 {
						p.Remove(k)
						drop(k)
					}
				}
			}
			var keys, held []int
			for k, value := range p.All() {
				keys, held = append(keys, k), append(held, value)
			}
			if !slices.Equal(keys, list) || !slices.Equal(held, values) || p.Len() != len(list) ||
				p.Has(key) != slices.Contains(list, key) {
				t.Fatalf("the part has %d with %d, want %d with %d", keys, held, list, values)
			}
		}
	})
}

// TestAKeyStaysTheOneThatWasAddedFirst: one that is set again may be a part of a longer text, which the map would
// keep in memory.
func TestAKeyStaysTheOneThatWasAddedFirst(t *testing.T) {
	m := bounded.New[string, int](1)
	put(m, "key", 1)
	long := strings.Repeat("x", 100) + "key"
	put(m, long[100:], 2)
	p := m.Of("key")
	p.Lock()
	defer p.Unlock()
	for key, value := range p.All() {
		if value != 2 || unsafe.StringData(key) == unsafe.StringData(long[100:]) {
			t.Errorf("%q is %d, and a part of a longer text", key, value)
		}
	}
}
