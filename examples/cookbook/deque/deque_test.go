package deque_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/examples/cookbook/deque"
	"github.com/gatehouse-go/gatehouse/examples/cookbook/internal/recipetest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// list is the list of most tests. Its braces are those of users, not of a hash tag.
const list = "jobs {1}"

var ids atomic.Int64

func newID() string { return fmt.Sprint("op ", ids.Add(1)) }

func push(t *testing.T, l *deque.Lists, end deque.End, values ...string) {
	t.Helper()
	for _, value := range values {
		if err := l.Push(t.Context(), list, end, newID(), value); err != nil {
			t.Fatalf("push %q: %v", value, err)
		}
	}
}

func wantPops(t *testing.T, l *deque.Lists, end deque.End, values ...string) {
	t.Helper()
	for _, want := range values {
		if value, err := l.Pop(t.Context(), list, end, newID()); err != nil || value != want {
			t.Errorf("pop %s: %q, %v: want %q", end, value, err, want)
		}
	}
}

func wantEmpty(t *testing.T, l *deque.Lists) {
	t.Helper()
	for _, end := range []deque.End{deque.Left, deque.Right} {
		if value, err := l.Pop(t.Context(), list, end, newID()); !errors.Is(err, deque.ErrEmpty) {
			t.Errorf("pop %s: %q, %v: want an empty list", end, value, err)
		}
	}
}

// TestTheOrderIsThatOfASlice: pops used to take from the wrong end, and the number of a shard was compared as
// text. Lists grow to both sides here, over shards with positive and negative numbers, and operations are
// repeated with their IDs.
func TestTheOrderIsThatOfASlice(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		l := deque.New(guardtest.NewEngine(b), deque.Options{PerShard: 2, Shards: 1000})
		number := 0
		rapid.Check(t, func(rt *rapid.T) {
			number++
			name, ctx := fmt.Sprint("list ", number), t.Context()
			var model []string
			last := func() {} // repeats the latest operation
			for i := range rapid.IntRange(1, 40).Draw(rt, "steps") {
				end := rapid.SampledFrom([]deque.End{deque.Left, deque.Right}).Draw(rt, "end")
				id, value := fmt.Sprint(i), fmt.Sprint("value ", i)
				switch rapid.IntRange(0, 4).Draw(rt, "op") {
				case 0, 1:
					do := func() {
						if err := l.Push(ctx, name, end, id, value); err != nil {
							rt.Fatalf("push %s %s: %v", end, value, err)
						}
					}
					do()
					last = do
					if end == deque.Left {
						model = append([]string{value}, model...)
					} else {
						model = append(model, value)
					}
				case 2, 3:
					want := ""
					switch {
					case len(model) == 0:
					case end == deque.Left:
						want, model = model[0], model[1:]
					default:
						want, model = model[len(model)-1], model[:len(model)-1]
					}
					do := func() {
						got, err := l.Pop(ctx, name, end, id)
						if got != want || (err == nil) != (want != "") || err != nil && !errors.Is(err, deque.ErrEmpty) {
							rt.Fatalf("pop %s: %q, %v: want %q", end, got, err, want)
						}
					}
					do()
					if want != "" { // a pop of an empty list leaves nothing, so it would be a new one
						last = do
					}
				default:
					last()
				}
			}
			for _, want := range model {
				if got, err := l.Pop(ctx, name, deque.Left, "rest "+want); err != nil || got != want {
					rt.Fatalf("the rest: %q, %v: want %q", got, err, want)
				}
			}
		})
	})
}

func TestEmptyShardsAreDeleted(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		l := deque.New(guardtest.NewEngine(b), deque.Options{PerShard: 2, Shards: 4})
		shards := func() (n int) {
			for _, key := range recipetest.Keys(t, b) {
				if !strings.Contains(key, "}:op|") {
					n++
				}
			}
			return n
		}
		push(t, l, deque.Right, "d", "e")
		push(t, l, deque.Left, "c", "b", "a")
		if n := shards(); n != 3+2 {
			t.Errorf("%d keys, want 3 shards, the ends and the bell", n)
		}
		wantPops(t, l, deque.Left, "a")
		wantPops(t, l, deque.Right, "e", "d")
		if n := shards(); n != 1+2 {
			t.Errorf("%d keys, want 1 shard, the ends and the bell", n)
		}
		wantPops(t, l, deque.Right, "c", "b")
		if n := shards(); n != 0 {
			t.Errorf("%d keys of an empty list", n)
		}
		wantEmpty(t, l)
	})
}

func TestAListIsBounded(t *testing.T) {
	b := redistest.Single(t)
	l := deque.New(guardtest.NewEngine(b), deque.Options{PerShard: 2, Shards: 2})
	push(t, l, deque.Right, "a", "b", "c", "d")
	for _, end := range []deque.End{deque.Left, deque.Right} {
		if err := l.Push(t.Context(), list, end, "full", "e"); !errors.Is(err, deque.ErrFull) {
			t.Errorf("push %s: %v", end, err)
		}
	}
	wantPops(t, l, deque.Left, "a", "b")
	push(t, l, deque.Right, "e")
	wantPops(t, l, deque.Right, "e", "d", "c")
}

// TestAShardThatExpiredIsPassedOver: values that nobody takes expire with their shard. The others stay, and
// nobody waits for those that are gone.
func TestAShardThatExpiredIsPassedOver(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		gate := guardtest.NewEngine(b)
		l := deque.New(gate, deque.Options{PerShard: 1})
		expire := func(shard string) {
			n, err := b.Client.Del(t.Context(), gate.Key("deque", list, "shard", shard)).Result()
			if n != 1 || err != nil {
				t.Fatalf("shard %s: %d, %v", shard, n, err)
			}
		}
		push(t, l, deque.Right, "a", "b", "c", "d")
		expire("0")
		expire("1")
		wantPops(t, l, deque.Left, "c")
		expire("3")
		_, err := l.PopWait(t.Context(), list, deque.Right, newID(), time.Millisecond)
		if !errors.Is(err, deque.ErrEmpty) {
			t.Errorf("a list whose last shard has expired: %v", err)
		}
		push(t, l, deque.Left, "e")
		wantPops(t, l, deque.Right, "e")
	})
}

// TestRemainsOfAListWithoutEndsAreDropped: they are no values of the next list, and nobody waits for them in
// a loop.
func TestRemainsOfAListWithoutEndsAreDropped(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		gate := guardtest.NewEngine(b)
		l := deque.New(gate, deque.Options{})
		lose := func() {
			push(t, l, deque.Right, "old")
			if err := b.Client.Del(t.Context(), gate.Key("deque", list, "ends")).Err(); err != nil {
				t.Fatal(err)
			}
		}
		lose()
		wantEmpty(t, l)
		if n, err := b.Client.Exists(t.Context(), gate.Key("deque", list, "bell")).Result(); n != 0 || err != nil {
			t.Errorf("the bell of an empty list is there: %d, %v", n, err)
		}
		lose()
		push(t, l, deque.Right, "new")
		wantPops(t, l, deque.Left, "new")
		wantEmpty(t, l)
	})
}

// TestScriptsDeclareTheirKeys: the keys of shards used to be made inside the script.
func TestScriptsDeclareTheirKeys(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		gate, declared := recipetest.NewDeclared(b)
		l := deque.New(gate, deque.Options{PerShard: 1})
		push(t, l, deque.Right, "a", "b", "c")
		push(t, l, deque.Left, "d", "e")
		wantPops(t, l, deque.Right, "c")
		declared.WantAll(t, b)
	})
}

func TestAServerThatForgetsItsScripts(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		l := deque.New(recipetest.Forgetful(t, b), deque.Options{PerShard: 1})
		push(t, l, deque.Right, "a", "b")
		wantPops(t, l, deque.Right, "b", "a")
		wantEmpty(t, l)
	})
}

// TestLostRepliesLoseNoValue: a pop whose reply is lost returns the same value when it is repeated with its
// ID.
func TestLostRepliesLoseNoValue(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		gate, faults := recipetest.Lossy(t, b, 0.3)
		l := deque.New(gate, deque.Options{PerShard: 3})
		const values = 20
		for i := range values {
			id := newID()
			recipetest.Retry(t, func() error { return l.Push(t.Context(), list, deque.Left, id, fmt.Sprint(i)) })
		}
		for i := range values {
			id, got := newID(), ""
			recipetest.Retry(t, func() (err error) {
				got, err = l.Pop(t.Context(), list, deque.Right, id)
				return err
			})
			if got != fmt.Sprint(i) {
				t.Errorf("%q, want %d", got, i)
			}
		}
		faults.Heal()
		wantEmpty(t, l)
		if faults.Swallowed() == 0 {
			t.Error("no reply was lost")
		}
	})
}

func TestIDsBelongToOneOperation(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		l, ctx := deque.New(guardtest.NewEngine(b), deque.Options{}), t.Context()
		for range 2 {
			if err := l.Push(ctx, list, deque.Left, "1", "a"); err != nil {
				t.Error(err)
			}
		}
		for name, err := range map[string]error{
			"another value": l.Push(ctx, list, deque.Left, "1", "b"),
			"another end":   l.Push(ctx, list, deque.Right, "1", "a"),
			"a pop":         func() error { _, err := l.Pop(ctx, list, deque.Left, "1"); return err }(),
		} {
			if !errors.Is(err, deque.ErrConflict) {
				t.Errorf("%s under the same ID: %v", name, err)
			}
		}
		wantPops(t, l, deque.Left, "a")
		wantEmpty(t, l)
	})
}

func TestAnyBytesAreKept(t *testing.T) {
	b := redistest.Single(t)
	l := deque.New(guardtest.NewEngine(b), deque.Options{PerShard: 3})
	push(t, l, deque.Right, guardtest.Hostile...)
	wantPops(t, l, deque.Left, guardtest.Hostile...)
	for i, name := range guardtest.Hostile {
		if err := l.Push(t.Context(), name, deque.Left, name, fmt.Sprint(i)); err != nil {
			t.Errorf("%.20q: %v", name, err)
		}
	}
	for i, name := range guardtest.Hostile {
		if value, err := l.Pop(t.Context(), name, deque.Right, newID()); err != nil || value != fmt.Sprint(i) {
			t.Errorf("%.20q has %q, %v: want %d", name, value, err, i)
		}
	}
}

func TestRequests(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		h := deque.Handler(deque.New(guardtest.NewEngine(b), deque.Options{PerShard: 1, Shards: 2}))
		jobs := "/lists/%7Bjobs%7D%00%FF"
		recipetest.Send(t, h, []recipetest.Request{
			{Method: "POST", Path: jobs + "/left", Body: "a", Status: 400},
			{Method: "POST", Path: jobs + "/middle", ID: "1", Body: "a", Status: 404},
			{Method: "POST", Path: "/lists//left", ID: "1", Body: "a", Status: 400},
			{Method: "POST", Path: jobs + "/left", ID: "1",
				Body: strings.Repeat("x", deque.MaxValue+1), Status: 413},
			{Method: "POST", Path: jobs + "/left", ID: "1", Body: "{\x00\xff}", Status: 204},
			{Method: "POST", Path: jobs + "/left", ID: "1", Body: "{\x00\xff}", Status: 204},
			{Method: "POST", Path: jobs + "/left", ID: "1", Body: "b", Status: 422},
			{Method: "POST", Path: jobs + "/right", ID: "2", Body: "", Status: 204},
			{Method: "POST", Path: jobs + "/right", ID: "3", Body: "c", Status: 409},
			{Method: "POST", Path: jobs + "/right/pop", ID: "4", Status: 200},
			{Method: "POST", Path: jobs + "/right/pop", Status: 400},
			{Method: "POST", Path: jobs + "/right/pop?wait=1h", ID: "5", Status: 400},
			{Method: "POST", Path: jobs + "/right/pop?wait=soon", ID: "5", Status: 400},
			{Method: "POST", Path: jobs + "/right/pop?wait=20s", ID: "5", Status: 200, Want: "{\x00\xff}"},
			{Method: "POST", Path: jobs + "/right/pop", ID: "5", Status: 200, Want: "{\x00\xff}"},
			{Method: "POST", Path: jobs + "/right/pop", ID: "6", Status: 204},
			{Method: "POST", Path: jobs + "/right/pop?wait=1ms", ID: "6", Status: 204},
		})
	})
}

func TestClientsDoNotSeeWhatIsWrongWithRedis(t *testing.T) {
	h := deque.Handler(deque.New(recipetest.Broken(t), deque.Options{}))
	recipetest.Send(t, h, []recipetest.Request{
		{Method: "POST", Path: "/lists/x/left", ID: "1", Status: 503},
		{Method: "POST", Path: "/lists/x/left/pop?wait=1s", ID: "2", Status: 503},
	})
}

func TestSetUpMistakesPanic(t *testing.T) {
	b := redistest.Mini(t)
	gate := guardtest.NewEngine(b)
	guardtest.WantPanic(t, "positive bounds", func() { deque.New(gate, deque.Options{Shards: -1}) })
	guardtest.WantPanic(t, "positive bounds", func() { deque.New(gate, deque.Options{Keep: 1}) })
	guardtest.WantPanic(t, "needs Redis", func() { deque.New(core.NewMemory(), deque.Options{}) })
	guardtest.WantPanic(t, "cannot wait", func() {
		deque.New(guardtest.NewEngineOver(b, guardtest.NoClient{}), deque.Options{})
	})
}

// counting counts the scripts and the blocking commands of a process.
type counting struct {
	redis.UniversalClient
	scripts, waits atomic.Int64
}

func (c *counting) Process(ctx context.Context, cmd redis.Cmder) error {
	if cmd.Name() == "evalsha" {
		c.scripts.Add(1)
	}
	return c.UniversalClient.Process(ctx, cmd)
}

func (c *counting) BLMove(
	ctx context.Context, source, destination, from, to string, timeout time.Duration,
) *redis.StringCmd {
	c.waits.Add(1)
	return c.UniversalClient.BLMove(ctx, source, destination, from, to, timeout)
}

// TestWaitersShareOneConnectionAndDoNotPoll: while a list is empty, a process with many waiters has one
// blocking command under way, and each waiter asks the list once per such command.
func TestWaitersShareOneConnectionAndDoNotPoll(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		client := &counting{UniversalClient: b.Client}
		l := deque.New(guardtest.NewEngineOver(b, client), deque.Options{PerShard: 2})
		const waiters = 10
		var all sync.WaitGroup
		got := make(chan string, waiters)
		for range waiters {
			all.Go(func() {
				value, err := l.PopWait(t.Context(), list, deque.Left, newID(), time.Minute)
				if err != nil {
					t.Error(err)
				}
				got <- value
			})
		}
		redistest.Eventually(t, time.Minute, func() bool {
			return client.scripts.Load() >= waiters && client.waits.Load() > 0
		}, "the waiters to ask")
		scripts, waits := client.scripts.Load(), client.waits.Load() // in this order: waits only grow
		if waits > 3 || scripts > waiters*(waits+1) {
			t.Errorf("%d pops and %d blocking commands of %d waiters", scripts, waits, waiters)
		}
		other := deque.New(guardtest.NewEngine(b), deque.Options{PerShard: 2})
		for i := range waiters {
			push(t, other, deque.Right, fmt.Sprint(i))
		}
		all.Wait()
		close(got)
		different := map[string]bool{}
		for value := range got {
			different[value] = true
		}
		if len(different) != waiters {
			t.Errorf("%d values, want %d: %v", len(different), waiters, different)
		}
		wantEmpty(t, other)
	})
}

// TestAWaiterWhoGivesUpTakesNothing: neither a value nor the bell of others.
func TestAWaiterWhoGivesUpTakesNothing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		first := &counting{UniversalClient: b.Client}
		second := &counting{UniversalClient: b.NewClient(t)}
		wait := func(ctx context.Context, client *counting) <-chan error {
			done := make(chan error, 1)
			l := deque.New(guardtest.NewEngineOver(b, client), deque.Options{})
			go func() {
				value, err := l.PopWait(ctx, list, deque.Left, newID(), time.Minute)
				if err == nil && value != "a" {
					err = fmt.Errorf("popped %q", value)
				}
				done <- err
			}()
			redistest.Eventually(t, time.Minute, func() bool { return client.waits.Load() > 0 }, "the waiter to wait")
			return done
		}
		ctx, cancel := context.WithCancel(t.Context())
		givesUp, stays := wait(ctx, first), wait(t.Context(), second)
		cancel()
		if err := <-givesUp; !errors.Is(err, context.Canceled) {
			t.Errorf("the one who gives up: %v", err)
		}
		l := deque.New(guardtest.NewEngine(b), deque.Options{})
		push(t, l, deque.Right, "a")
		if err := <-stays; err != nil {
			t.Errorf("the other: %v", err)
		}
		wantEmpty(t, l)
		_, err := l.PopWait(t.Context(), list, deque.Left, newID(), time.Millisecond)
		if !errors.Is(err, deque.ErrEmpty) {
			t.Errorf("a short wait: %v", err)
		}
	})
}

// TestPushersAndWaitersAtOnce: each value is taken once.
func TestPushersAndWaitersAtOnce(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		l := deque.New(guardtest.NewEngine(b), deque.Options{PerShard: 2})
		const workers, each = 4, 10
		ends := []deque.End{deque.Left, deque.Right}
		var all sync.WaitGroup
		got := make(chan string, workers*each)
		for w := range workers {
			all.Go(func() {
				for i := range each {
					if err := l.Push(t.Context(), list, ends[(w+i)%2], newID(), fmt.Sprint(w, "-", i)); err != nil {
						t.Error(err)
					}
				}
			})
			all.Go(func() {
				for i := range each {
					value, err := l.PopWait(t.Context(), list, ends[(w+i/2)%2], newID(), time.Minute)
					if err != nil {
						t.Error(err)
					}
					got <- value
				}
			})
		}
		all.Wait()
		close(got)
		different := map[string]bool{}
		for value := range got {
			different[value] = true
		}
		if len(different) != workers*each {
			t.Errorf("%d different values, want %d", len(different), workers*each)
		}
		wantEmpty(t, l)
	})
}
