package votes

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// answerBytes returns the length of the stored answer to an operation of the poll "p".
func answerBytes(t *testing.T, b redistest.Backend, g *Guard, id string) int {
	t.Helper()
	text, err := b.Client.HGet(t.Context(), g.operationKeys("p", id)[3], fieldOf(id)).Result()
	if err != nil {
		t.Fatal(err)
	}
	return len(text)
}

// TestVotesOperationsAreShort: a stored answer was a key of its own, of 215 bytes. It is a field of a hash
// that some dozen operations share, and takes 45 bytes at most, whether the ID is from outside or not.
func TestVotesOperationsAreShort(t *testing.T) {
	s := redistest.StartServer(t, "--save", "")
	rdb := s.Client(t)
	const votes = 10_000
	for name, id := range map[string]func(i int) string{
		"made":  func(int) string { return "" },
		"given": func(i int) string { return fmt.Sprintf("0b0ed5ab-5c1d-4d0c-9c7e-%012d", i) },
	} {
		e := core.New(rdb, core.WithDeadline(time.Minute), core.WithObserver(guardtest.Ignore{}))
		g := New(e, name, Options{})
		var all sync.WaitGroup
		for worker := range 8 {
			all.Go(func() {
				for i := worker; i < votes; i += 8 {
					guardtest.WantReason(t, guardtest.Check(t, g,
						core.Attempt{Actor: fmt.Sprint(i), Resource: "p", Item: "red", ID: id(i)}), core.ReasonOK)
				}
			})
		}
		all.Wait()
		bytes, keys := int64(0), 0
		for it := rdb.Scan(t.Context(), 0, "*:votes:"+name+":{p}:op|*", 1000).Iterator(); it.Next(t.Context()); {
			bytes += rdb.MemoryUsage(t.Context(), it.Val(), 0).Val()
			keys++
		}
		each := float64(bytes) / votes
		t.Logf("%s: %.1f bytes each, %d keys", name, each, keys)
		if each > 45 || each < 20 {
			t.Errorf("%s: %.1f bytes per operation, want 45 at most", name, each)
		}
	}
}

// TestVotesIDsNameTheirHash: an ID that a guard makes says which hash has the answer. So whoever has only the
// ID, such as another process, gets the answer too. No ID is made twice, and few of them share a hash.
func TestVotesIDsNameTheirHash(t *testing.T) {
	ids, now := newOperationIDs(time.Minute), time.Now()
	made, each := map[string]bool{}, map[string]int{}
	for i := range 5000 {
		poll := fmt.Sprint("p", i%6)
		id := ids.next(poll, now.Add(time.Duration(i)*time.Millisecond))
		bucket, field := operationOf(id)
		if made[id] || bucket+field != id || len(bucket) != nameBytes {
			t.Fatalf("%q: %q, %q", id, bucket, field)
		}
		made[id] = true
		each[fmt.Sprint(bucket, poll)]++
	}
	if n := len(each); n < 5000/idsEach || n > 5000/idsEach+6 {
		t.Errorf("%d hashes for 5000 IDs, want %d in each", n, idsEach)
	}
	for _, id := range []string{"", "o1", "0b0ed5ab-5c1d-4d0c-9c7e-000000000001", "ABCDEFGHIJKLMNOPQRSTUVWXY1"} {
		if bucket, field := operationOf(id); len(bucket) != 2 || len(field) != 12 {
			t.Errorf("%q: %q, %q", id, bucket, field)
		}
	}
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		a := core.Attempt{Actor: "ann", Resource: "p", Item: "red"}
		first := guardtest.Check(t, New(guardtest.NewEngine(b), "v", Options{}), a)
		a.ID = first.Attempt.ID
		again := guardtest.Check(t, New(guardtest.NewEngine(b), "v", Options{}), a)
		if guardtest.WantReason(t, again, core.ReasonOK); !again.Replayed {
			t.Errorf("%+v: want a replay", again)
		}
	})
}
