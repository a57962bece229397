package votes

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestVotesMemory measures the memory of a poll's records, with IDs of all lengths: less than 20 bytes per
// voter, including the choice.
func TestVotesMemory(t *testing.T) {
	redistest.LeftToCI(t)
	voters := 25_000
	if guardtest.Soak() {
		voters = 250_000
	}
	s := redistest.StartServer(t, "--save", "")
	rdb := s.Client(t)
	g := New(core.New(rdb, core.WithDeadline(time.Minute), core.WithRetryHorizon(time.Second),
		core.WithObserver(guardtest.Ignore{})), "v", Options{})
	used := func() int64 {
		t.Helper()
		var n int64
		_, text, _ := strings.Cut(rdb.Info(t.Context(), "memory").Val(), "used_memory:")
		if _, err := fmt.Sscan(text, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := used()
	id := func(i int) string { return fmt.Sprintf("%d%s", i, strings.Repeat("x", i%50)) }
	cast := func(from, to int) {
		var all sync.WaitGroup
		for worker := range 16 {
			all.Go(func() {
				for i := from + worker; i < to; i += 16 {
					d, err := g.Check(t.Context(),
						core.Attempt{Actor: id(i), Resource: "p", Item: fmt.Sprint("choice ", i%10)})
					if err != nil || d.Reason != core.ReasonOK {
						t.Errorf("voter %d: %+v, %v", i, d, err)
						return
					}
				}
			})
		}
		all.Wait()
	}
	keys := g.Keys("p")
	worst := 0.0
	const steps = 10
	for step := range steps { // buckets of all sizes: right after a doubling and right before the next
		cast(voters*step/steps, voters*(step+1)/steps)
		sum := int64(0)
		for _, key := range keys {
			sum += rdb.MemoryUsage(t.Context(), key, 0).Val()
		}
		each := float64(sum) / float64(voters*(step+1)/steps)
		t.Logf("%8d voters: %.2f bytes each", voters*(step+1)/steps, each)
		worst = max(worst, each)
	}
	if worst >= 20 || worst < 12 {
		t.Errorf("%.2f bytes per voter, want less than 20", worst)
	}
	redistest.Eventually(t, time.Minute,
		func() bool { return rdb.DBSize(t.Context()).Val() == int64(len(keys)) }, "the operations have expired")
	t.Logf("all of the server's memory: %.2f bytes each", float64(used()-before)/float64(voters))
	if r, err := g.Verify(t.Context(), "p"); err != nil || !r.Consistent() || r.Voters != int64(voters) ||
		r.Votes != int64(voters) {
		t.Errorf("Verify: %v, %v", r, err)
	}
}
