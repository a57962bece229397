package lease

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// trips counts what a client sends: commands by themselves, and pipelines.
type trips struct{ commands, pipelines atomic.Int64 }

func (*trips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (n *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		n.commands.Add(1)
		return next(ctx, cmd)
	}
}

func (n *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		n.pipelines.Add(1)
		return next(ctx, cmds)
	}
}

// crowd is a guard and what its actors have taken.
type crowd struct {
	*Guard
	e     *core.Engine
	of    limit.Limit
	taken map[string]int64
}

func newCrowd(b redistest.Backend, most int) *crowd {
	c := &crowd{of: limit.PerDay(10_000), taken: map[string]int64{}}
	c.e = guardtest.NewEngine(b, guardtest.WithClock(guardtest.NewClockAt(partBegins)))
	c.Guard = New(c.e, "many", c.of).holding(most)
	return c
}

// come lets actors make some attempts each, after which each has units in hand.
func (c *crowd) come(t *testing.T, actors []string, attempts int64) {
	t.Helper()
	for _, a := range actors {
		for range attempts {
			guardtest.WantReason(t, guardtest.Check(t, c, core.Attempt{Actor: a}), core.ReasonOK)
			c.taken[a]++
		}
	}
}

// inHands returns the units that are in hand, of all actors.
func (c *crowd) inHands() (units int64) {
	for _, h := range c.hands.all() {
		h.mu.Lock()
		units += h.lot.Units
		h.mu.Unlock()
	}
	return units
}

func actors(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint(prefix, i)
	}
	return names
}

// wantTaken: in Redis exactly what was handed out counts, for each actor.
func (c *crowd) wantTaken(t *testing.T) {
	t.Helper()
	for a, n := range c.taken {
		if d, err := c.Peek(t.Context(), core.Attempt{Actor: a}); err != nil || d.Remaining != c.of.Max-n {
			t.Fatalf("%.20s: %+v, %v: want %d taken", a, d, err, n)
		}
	}
}

// TestManyActorsTakeABoundedMemory: PerDay(10_000) with a lease kept 450 bytes for each actor, and a
// closure for each fetch, for 72 to 144 minutes: 198 MB after 400,000 actors. An actor who gives way to
// another one has the units back, and no unit is handed out twice.
//
// Promise: A guard with leases keeps 65,536 actors in some 30 MB. Units of an actor that is dropped go back.
func TestManyActorsTakeABoundedMemory(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		const most = 10 * 64
		c := newCrowd(b, most)
		c.come(t, actors("ann", 800), 2)
		c.come(t, actors("ann", 200), 1) // some of them have given way
		if n := len(c.hands.all()); n > most {
			t.Errorf("%d hands, want %d at most", n, most)
		}
		redistest.Eventually(t, time.Minute, func() bool { return c.e.Pending() == 1 },
			"only the sweep is left to be done")
		if n := c.inHands(); n == 0 || n > most {
			t.Errorf("%d units in hand, want one for each hand at most", n)
		}
		if err := c.e.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := c.inHands(); n != 0 {
			t.Errorf("%d units in hand after Drain", n)
		}
		c.wantTaken(t)
	})
}

// TestActorsWhoComeOnceFetchNothingAhead: each of them had a unit in hand for a part, which went back by a
// call of its own.
func TestActorsWhoComeOnceFetchNothingAhead(t *testing.T) {
	b := redistest.Single(t)
	c := newCrowd(b, mostHands)
	c.come(t, actors("ann", 300), 1)
	if n := c.inHands(); n != 0 {
		t.Errorf("%d units in hand", n)
	}
	c.wantTaken(t)
}

// TestLongTextsOfActorsAreNotKept: the keys of leases had the actor's text whole: 30,000 actors of 8 kB
// took 388 MB.
func TestLongTextsOfActorsAreNotKept(t *testing.T) {
	b := redistest.Single(t)
	c := newCrowd(b, mostHands)
	const n = 1000
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	long := func(i int) core.Attempt {
		return core.Attempt{Actor: strings.Repeat("x", 8000) + fmt.Sprint(i), Resource: strings.Repeat("y", 8000)}
	}
	before := heap()
	for i := range n {
		for range 3 {
			guardtest.WantReason(t, guardtest.Check(t, c, long(i)), core.ReasonOK)
		}
	}
	took := (heap() - before) / n
	t.Logf("%d bytes for each actor", took)
	if took > 2500 { // what the process remembers of a limit in an outage included
		t.Errorf("%d bytes for each actor of 8 kB", took)
	}
	runtime.KeepAlive(c)
	if err := c.e.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d, err := c.Peek(t.Context(), long(1)); err != nil || d.Remaining != c.of.Max-3 {
		t.Errorf("%v, %v: want the units in hand back", d.Remaining, err)
	}
}

// TestDrainOfManyLeasesTakesFewTrips: it took 7 to 12 s for 150,000 actors, with a call for each.
func TestDrainOfManyLeasesTakesFewTrips(t *testing.T) {
	b := redistest.Single(t)
	sent := &trips{}
	b.Client.AddHook(sent)
	c := newCrowd(b, mostHands)
	if err := c.e.Preload(t.Context()); err != nil { // else the first pipeline's calls send the script each
		t.Fatal(err)
	}
	const n = 1000
	c.come(t, actors("ann", n), 2)
	if inHand := c.inHands(); inHand != n {
		t.Fatalf("%d units in hand, want %d", inHand, n)
	}
	if jobs := c.e.Pending(); jobs != 1 {
		t.Errorf("%d jobs for %d actors, want one sweep", jobs, n)
	}
	commands, pipelines := sent.commands.Load(), sent.pipelines.Load()
	if err := c.e.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	commands, pipelines = sent.commands.Load()-commands, sent.pipelines.Load()-pipelines
	// On a busy machine a few calls are late, and go again by themselves.
	if most := int64(n/batch + 1); pipelines+commands > 4*most {
		t.Errorf("Drain took %d commands and %d pipelines, want %d in all", commands, pipelines, most)
	}
	c.wantTaken(t)
}

// TestHandsAreForgotten: nobody asks about them for two parts.
func TestHandsAreForgotten(t *testing.T) {
	b := redistest.Single(t)
	e := guardtest.NewEngine(b)
	g := New(e, "short", limit.Per(4000, 100*time.Millisecond).WithResolution(5))
	for i := range 300 {
		guardtest.Check(t, g, core.Attempt{Actor: fmt.Sprint(i % 100)})
	}
	redistest.Eventually(t, time.Minute, func() bool { return len(g.hands.all()) == 0 && e.Pending() == 0 },
		"hands are forgotten, and no sweep is due")
}

// TestALeaseAsksAFunctionOncePerAttempt, whether the attempt is decided by what is in hand or not.
func TestALeaseAsksAFunctionOncePerAttempt(t *testing.T) {
	calls, failing := 0, error(nil)
	e := guardtest.NewEngine(redistest.Mini(t), guardtest.WithClock(guardtest.NewClockAt(partBegins)))
	g := NewBy(e, "by", func(context.Context, core.Attempt) ([]limit.Limit, error) {
		calls++
		return []limit.Limit{limit.PerHour(4000)}, failing
	})
	for n := 1; n <= 20; n++ {
		if guardtest.Check(t, g, tenant); calls != n {
			t.Fatalf("%d calls for %d attempts", calls, n)
		}
	}
	failing = errors.New("no limits")
	if _, err := g.Check(t.Context(), tenant); !errors.Is(err, failing) || calls != 21 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

// slow is a client whose server takes its time, and leaves each first decision to the long script.
type slow struct {
	*redis.Client
	takes time.Duration
	first bool
}

func (s *slow) Process(ctx context.Context, cmd redis.Cmder) error {
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		cmd.SetErr(ctx.Err())
		return ctx.Err()
	}
	reply := any("5 1 0")
	if s.first = !s.first; s.first {
		reply = []any{int64(2)}
	}
	cmd.(interface{ SetVal(any) }).SetVal(reply)
	return nil
}

// TestTwoScriptsOfALeaseShareItsDeadline: the script that decides in place of a short one had a deadline of
// its own, so a check could take two of them.
func TestTwoScriptsOfALeaseShareItsDeadline(t *testing.T) {
	const deadline = 100 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
		defer func() { _ = rdb.Close() }()
		server := &slow{Client: rdb, takes: deadline * 3 / 5}
		g := New(core.New(server, core.WithDeadline(deadline)), "slow", limit.PerMinute(10_000))
		begun := time.Now()
		_, err := g.Check(t.Context(), tenant)
		if took := time.Since(begun); !errors.Is(err, context.DeadlineExceeded) || took != deadline {
			t.Errorf("%v after %v, want an end at the deadline, %v", err, took, deadline)
		}
	})
}

// TestAPlainLimitHasNoLeases: they are imported by choice.
func TestAPlainLimitHasNoLeases(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "..").CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	if strings.Contains(string(out), "core/limit/lease") {
		t.Error("core/limit imports package lease")
	}
}
