package kit_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
	"weak"

	"github.com/gatehouse-go/gatehouse/core/kit"
)

func wantRecall(
	t *testing.T, what string, r *kit.Recall[string, int], key string, now time.Time, want int, found bool,
) {
	t.Helper()
	if got, ok := r.Find(key, now); got != want || ok != found {
		t.Errorf("%s: %d, %t; want %d, %t", what, got, ok, want, found)
	}
}

func TestRecallFindsAnswersWhileTheyAreFresh(t *testing.T) {
	now := time.Now()
	for _, c := range []struct{ longest, lasts, want time.Duration }{
		{time.Second, time.Second, time.Second},
		{time.Second, time.Hour, time.Second},
		{time.Hour, time.Minute, time.Minute},
		{time.Hour, 1, 1},
		{time.Hour, 0, 0},
		{time.Hour, -1, 0},
		{0, time.Hour, 0},
		{-1, time.Hour, 0},
	} {
		r := kit.NewRecall[string, int](100, c.longest)
		r.Hear(r.Ask("a", now), 7, c.lasts)
		what := fmt.Sprintf("%+v", c)
		if c.want > 0 {
			wantRecall(t, what+" at once", r, "a", now, 7, true)
			wantRecall(t, what+" in time", r, "a", now.Add(c.want-1), 7, true)
		}
		wantRecall(t, what+" when it is over", r, "a", now.Add(c.want), 0, false)
		wantRecall(t, what+" with the clock set back", r, "a", now.Add(-1), 0, false)
		wantRecall(t, what+" of another key", r, "b", now, 0, false)
		if last, ok := r.Last("a"); ok != (c.want > 0) || ok && last != 7 {
			t.Errorf("%s: last %d, %t", what, last, ok)
		}
		if r.Longest() != c.longest {
			t.Errorf("%s: longest %v", what, r.Longest())
		}
	}
}

// TestRecallRemembersNothing: a Recall that is turned off stays empty.
func TestRecallRemembersNothing(t *testing.T) {
	now := time.Now()
	r := kit.NewRecall[string, int](100, 0)
	asked := r.Ask("a", now)
	r.Hear(asked, 1, time.Second)
	r.Set(asked, 1, time.Second)
	r.Merge(asked, time.Second, func(int, bool) int { t.Error("Merge calls"); return 1 })
	r.Update("a", func(int, bool) (int, bool) { t.Error("Update calls"); return 1, true })
	r.Drop("a")
	if _, ok := r.Last("a"); ok || r.Len() != 0 {
		t.Errorf("%d are held", r.Len())
	}
}

// TestRecallWithAClockSetBack: answers from the future of the new clock are not found, and new answers
// replace them.
func TestRecallWithAClockSetBack(t *testing.T) {
	now := time.Now()
	r := kit.NewRecall[string, int](100, time.Minute)
	r.Hear(r.Ask("a", now), 1, time.Minute)
	back := now.Add(-time.Hour)
	wantRecall(t, "after the jump", r, "a", back, 0, false)
	r.Hear(r.Ask("a", back), 2, time.Minute)
	wantRecall(t, "asked after the jump", r, "a", back, 2, true)
	wantRecall(t, "a minute after the jump", r, "a", back.Add(time.Minute), 0, false)
	wantRecall(t, "when the clock is right again", r, "a", now, 0, false)
}

func TestRecallKeepsNoAnswerThatWasDroppedInFlight(t *testing.T) {
	now := time.Now()
	r := kit.NewRecall[string, int](100, time.Minute)
	r.Hear(r.Ask("a", now), 1, time.Minute)
	underWay := r.Ask("a", now)
	if r.Dropped(underWay) {
		t.Error("dropped before Drop")
	}
	r.Drop("a")
	wantRecall(t, "dropped", r, "a", now, 0, false)
	r.Hear(underWay, 2, time.Minute)
	wantRecall(t, "was under way", r, "a", now, 0, false)
	r.Merge(underWay, time.Minute, func(int, bool) int { t.Error("merged"); return 2 })
	if !r.Dropped(underWay) || r.Len() != 0 {
		t.Errorf("dropped: %t, %d are held", r.Dropped(underWay), r.Len())
	}
	r.Hear(r.Ask("a", now), 3, time.Minute)
	wantRecall(t, "asked after the drop", r, "a", now, 3, true)
	r.Hear(underWay, 4, time.Minute)
	wantRecall(t, "the old answer comes after the new one", r, "a", now, 3, true)
}

// TestRecallDropsOfOtherKeys: only a few of five thousand other keys share the mark.
func TestRecallDropsOfOtherKeys(t *testing.T) {
	now := time.Now()
	r := kit.NewRecall[string, int](10_000, time.Minute)
	asked := r.Ask("a", now)
	shared := 0
	for i := range 5000 {
		r.Drop(fmt.Sprint(i))
		if r.Dropped(asked) {
			shared++
			asked = r.Ask("a", now)
		}
	}
	if shared > 50 { // 5 are expected
		t.Errorf("%d of 5000 keys share the mark of one", shared)
	}
}

// TestRecallKeepsTheLaterAnswer: two answers at the same moment of the clock, in either order.
func TestRecallKeepsTheLaterAnswer(t *testing.T) {
	now := time.Now()
	for _, swap := range []bool{false, true} {
		r := kit.NewRecall[string, int](100, time.Minute)
		answers := []kit.Asked[string]{r.Ask("a", now), r.Ask("a", now)}
		order := []int{0, 1}
		if swap {
			slices.Reverse(order)
		}
		for _, i := range order {
			r.Hear(answers[i], i, time.Minute)
		}
		wantRecall(t, fmt.Sprint("swapped: ", swap), r, "a", now, 1, true)
	}
}

func TestRecallSet(t *testing.T) {
	now := time.Now()
	r := kit.NewRecall[string, int](100, time.Minute)
	change := r.Ask("a", now)
	overtakes := r.Ask("a", now)
	r.Set(change, 1, time.Minute)
	r.Hear(overtakes, 2, time.Minute)
	wantRecall(t, "what was under way at a change", r, "a", now, 1, true)
	r.Hear(r.Ask("a", now), 3, time.Minute)
	wantRecall(t, "asked after the change", r, "a", now, 3, true)

	one, other := r.Ask("a", now), r.Ask("a", now)
	r.Set(other, 4, time.Minute)
	r.Set(one, 5, time.Minute)
	wantRecall(t, "two changes at once", r, "a", now, 0, false)
	r.Set(r.Ask("a", now), 6, 0)
	if r.Len() != 0 {
		t.Error("an answer with no lifetime is held")
	}
}

func TestRecallMerge(t *testing.T) {
	now := time.Now()
	r := kit.NewRecall[string, int](100, time.Minute)
	add := func(at time.Time, n int) {
		r.Merge(r.Ask("a", at), time.Second, func(old int, ok bool) int {
			if ok != (old != 0) {
				t.Errorf("%d, %t", old, ok)
			}
			return old + n
		})
	}
	add(now, 1)
	add(now, 2)
	wantRecall(t, "merged", r, "a", now, 3, true)
	add(now.Add(time.Hour), 4)
	wantRecall(t, "merged with what was over", r, "a", now.Add(time.Hour), 7, true)
	wantRecall(t, "its time is that of the last", r, "a", now, 0, false)
}

func TestRecallUpdate(t *testing.T) {
	now := time.Now()
	r := kit.NewRecall[string, int](100, time.Minute)
	set := func(n int, change bool) func(int, bool) (int, bool) {
		return func(int, bool) (int, bool) { return n, change }
	}
	r.Update("a", set(1, false))
	if r.Len() != 0 {
		t.Error("no change, and a key is held")
	}
	r.Update("a", set(1, true))
	wantRecall(t, "a mark is not an answer", r, "a", now, 0, false)
	wantRecall(t, "at no time", r, "a", time.Time{}, 0, false)
	if last, ok := r.Last("a"); last != 1 || !ok {
		t.Errorf("last %d, %t", last, ok)
	}
	underWay := r.Ask("a", now)
	r.Update("a", set(2, true))
	r.Hear(underWay, 3, time.Second)
	wantRecall(t, "an answer replaces the mark", r, "a", now, 3, true)
	r.Update("a", func(old int, ok bool) (int, bool) { return 10 * old, ok })
	wantRecall(t, "updated", r, "a", now, 30, true)
	wantRecall(t, "as fresh as it was", r, "a", now.Add(time.Second), 0, false)
	r.Update("a", set(4, false))
	wantRecall(t, "no change", r, "a", now, 30, true)
}

func TestRecallIsBounded(t *testing.T) {
	for _, keys := range []int{1, 64, 1000, 1 << 14} {
		now, bound := time.Now(), (keys+63)/64*64
		r := kit.NewRecall[string, int](keys, time.Minute)
		for i := range 3 * bound {
			key := fmt.Sprint(i)
			switch i % 4 {
			case 0:
				r.Hear(r.Ask(key, now), i, time.Minute)
			case 1:
				r.Merge(r.Ask(key, now), time.Minute, func(int, bool) int { return i })
			case 2:
				r.Set(r.Ask(key, now), i, time.Minute)
			default:
				r.Update(key, func(int, bool) (int, bool) { return i, true })
			}
			r.Drop("x" + key)
		}
		if n := r.Len(); n > bound || n < bound/2 {
			t.Errorf("%d keys are held, want %d at most", n, bound)
		}
	}
	defer func() {
		if said := fmt.Sprint(recover()); !strings.Contains(said, "0 keys") {
			t.Errorf("panic %q", said)
		}
	}()
	kit.NewRecall[string, int](0, time.Minute)
}

// TestRecallForgetsTheLeastUsed: a key that is looked up stays.
func TestRecallForgetsTheLeastUsed(t *testing.T) {
	now := time.Now()
	r := kit.NewRecall[string, int](640, time.Minute)
	r.Hear(r.Ask("used", now), 1, time.Minute)
	for i := range 6400 {
		key := fmt.Sprint(i)
		r.Hear(r.Ask(key, now), i, time.Minute)
		wantRecall(t, "used", r, "used", now, 1, true)
	}
}

// pair is a key of two texts. It counts how often it is copied.
type pair struct{ a, b string }

var clones atomic.Int64

func (p pair) Clone() pair {
	clones.Add(1)
	return pair{strings.Clone(p.a), strings.Clone(p.b)}
}

// TestRecallCopiesKeys: a key that is a substring of a long text does not keep the long text alive.
func TestRecallCopiesKeys(t *testing.T) {
	texts := kit.NewRecall[string, string](64, time.Minute)
	for i, keep := range []func(kit.Asked[string]){
		func(a kit.Asked[string]) { texts.Hear(a, "", time.Minute) },
		func(a kit.Asked[string]) { texts.Set(a, "", time.Minute) },
		func(a kit.Asked[string]) { texts.Merge(a, time.Minute, func(string, bool) string { return "" }) },
		func(a kit.Asked[string]) { texts.Update(a.Key, func(string, bool) (string, bool) { return "", true }) },
	} {
		long := strings.Repeat("x", 1<<20)
		held := weak.Make(unsafe.StringData(long))
		texts.Drop(long[:8])
		keep(texts.Ask(long[:8], time.Now()))
		runtime.GC()
		if held.Value() != nil {
			t.Errorf("way %d: the key is a substring of the long text", i)
		}
		if _, found := texts.Last("xxxxxxxx"); !found {
			t.Errorf("way %d: the key is not held", i)
		}
	}
	long := strings.Repeat("x", 1<<20)
	before := clones.Load()
	pairs := kit.NewRecall[pair, int](64, time.Minute)
	pairs.Hear(pairs.Ask(pair{long[:8], "b"}, time.Now()), 1, time.Minute)
	if n := clones.Load() - before; n != 1 {
		t.Errorf("copied %d times, want once", n)
	}
	if n, ok := pairs.Find(pair{"xxxxxxxx", "b"}, time.Now()); n != 1 || !ok {
		t.Errorf("%d, %t", n, ok)
	}
}

func TestRecallFindAllocatesNothing(t *testing.T) {
	now := time.Now()
	r := kit.NewRecall[string, int](64, time.Minute)
	r.Hear(r.Ask("a", now), 1, time.Minute)
	n := testing.AllocsPerRun(1000, func() {
		r.Find("a", now)
		r.Last("a")
		r.Ask("a", now)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestRecallRace: a number in "Redis" only grows. A goroutine that has changed it and dropped the key must
// never find a smaller number again, whatever older answers readers store at the same time.
func TestRecallRace(t *testing.T) {
	const keys, readers, questions = 2, 6, 5_000
	r := kit.NewRecall[string, int64](keys, time.Hour)
	var stored [keys]atomic.Int64
	var least [keys]atomic.Int64 // the least number that a read from now on may find
	now := time.Now()
	var all, writers sync.WaitGroup
	var done atomic.Bool
	var hits, asks atomic.Int64
	for key := range keys {
		writers.Go(func() {
			name := fmt.Sprint(key)
			for i := 0; asks.Load() < questions; i++ {
				asked := r.Ask(name, now)
				n := stored[key].Add(1)
				switch i % 3 {
				case 0:
					r.Drop(name)
				case 1:
					r.Set(asked, n, time.Hour)
				default:
					r.Drop(name)
					r.Update(name, func(old int64, ok bool) (int64, bool) { return old, ok })
				}
				least[key].Store(n)
				runtime.Gosched()
			}
		})
	}
	for range readers {
		all.Go(func() {
			for i := 0; !done.Load(); i++ {
				key := i % keys
				name, want := fmt.Sprint(key), least[key].Load()
				if got, ok := r.Find(name, now); ok {
					hits.Add(1)
					if got < want {
						t.Errorf("key %d: %d is remembered, and was changed to %d before", key, got, want)
						asks.Store(questions) // enough questions
						return
					}
					continue
				}
				asked := r.Ask(name, now)
				asks.Add(1)
				got := stored[key].Load()
				runtime.Gosched() // the answer is on its way
				if i%4 < 2 {
					r.Hear(asked, got, time.Hour)
				} else {
					r.Merge(asked, time.Hour, func(old int64, _ bool) int64 { return max(old, got) })
				}
			}
		})
	}
	writers.Wait()
	done.Store(true)
	all.Wait()
	t.Logf("%d answers from memory, %d questions", hits.Load(), asks.Load())
}

func BenchmarkRecallFind(b *testing.B) {
	now := time.Now()
	r := kit.NewRecall[string, int](1<<16, time.Minute)
	r.Hear(r.Ask("203.0.113.7", now), 1, time.Minute)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, ok := r.Find("203.0.113.7", now); !ok {
				b.Error("not found")
			}
		}
	})
}
