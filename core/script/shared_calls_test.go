package script_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// road is a hook of the connections to each server. It can hold the commands that go by themselves, and it
// says what becomes of pipelines.
type road struct {
	holds    atomic.Bool
	held     atomic.Int64
	fails    atomic.Bool  // commands that go by themselves
	panics   atomic.Bool  // likewise
	commands atomic.Int64 // of scripts that were answered
	before   func()       // is called before a script for several checks is sent
	release  chan struct{}

	mu       sync.Mutex
	pipes    []int // the lengths of the pipelines of scripts
	pipeline func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error
}

func (r *road) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *road) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if r.holds.Load() && strings.HasPrefix(cmd.Name(), "eval") {
			r.held.Add(1)
			<-r.release
		}
		if r.panics.Load() {
			panic("a hook")
		}
		if r.fails.Load() {
			cmd.SetErr(errNoReply)
			return errNoReply
		}
		// A run for several checks has more than one cost.
		args := cmd.Args()
		if r.before != nil && cmd.Name() == "evalsha" && args[1] == joinedScript.SHA() && len(args) > 7 {
			r.before()
		}
		err := next(ctx, cmd)
		r.count(cmd, err)
		return err
	}
}

// count counts a script that its server knew.
func (r *road) count(cmd redis.Cmder, err error) {
	if strings.HasPrefix(cmd.Name(), "eval") && !redis.HasErrorPrefix(err, "NOSCRIPT") {
		r.commands.Add(1)
	}
}

func (r *road) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !strings.HasPrefix(cmds[0].Name(), "eval") {
			return next(ctx, cmds)
		}
		r.mu.Lock()
		r.pipes = append(r.pipes, len(cmds))
		pipeline := r.pipeline
		r.mu.Unlock()
		if pipeline != nil {
			return pipeline(ctx, cmds, next)
		}
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			r.count(cmd, cmd.Err())
		}
		return err
	}
}

// lengths returns the lengths of the pipelines so far.
func (r *road) lengths() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.pipes)
}

// crowd is an engine whose calls can be made to wait for each other.
type crowd struct {
	*road
	e     *core.Engine
	under sync.WaitGroup // the calls that are under way
	all   sync.WaitGroup // all calls
}

// count adds ARGV[1] to a number, and returns the sum and ARGV[2].
const count = `
local sum = redis.call('INCRBY', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[1], 60000)
return {sum, ARGV[2]}`

var (
	countOnce = script.New("count_once", count, script.AtMostOnce).Shared()
	// It is not really idempotent, so that each run is seen.
	countAgain = script.New("count_again", count, script.Idempotent).Shared()
)

func newCrowd(t *testing.T, b redistest.Backend, options ...core.Option) *crowd {
	t.Helper()
	return newCrowdOver(t, b, b.NewClient(t), options...)
}

func newCrowdOver(
	t *testing.T, b redistest.Backend, rdb redis.UniversalClient, options ...core.Option,
) *crowd {
	t.Helper()
	c := &crowd{road: &road{release: make(chan struct{})}}
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(c.road) })
	} else {
		rdb.AddHook(c.road)
	}
	c.e = core.New(rdb, append([]core.Option{core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute),
		core.WithObserver(guardtest.Ignore{})}, options...)...)
	c.e.SetSharedWait(time.Hour)
	t.Cleanup(c.open)                                           // where the test has failed
	for _, s := range []*script.Script{countOnce, countAgain} { // so that its hash is known
		if _, err := c.run(t.Context(), s, 0, "first"); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *crowd) key() string { return c.e.Key("count", "p") }

func (c *crowd) run(ctx context.Context, s *script.Script, n int, text string) (any, error) {
	return c.e.Run(ctx, s, []string{c.key()}, n, text)
}

// sum returns what has been counted.
func (c *crowd) sum(t *testing.T) int {
	t.Helper()
	text, err := c.e.Client().(redis.UniversalClient).Get(t.Context(), c.key()).Result()
	if err != nil {
		t.Fatal(err)
	}
	sum, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// fill has as many calls under way as there may be. They count 0.
func (c *crowd) fill(t *testing.T) {
	t.Helper()
	// A pipeline in a goroutine of its own leaves its place after its callers have their answers.
	redistest.Eventually(t, time.Minute, func() bool { return c.e.Flights() == 0 }, "nothing is under way")
	c.held.Store(0)
	c.holds.Store(true)
	for range 2 {
		c.under.Add(1)
		c.all.Go(func() {
			defer c.under.Done()
			if _, err := c.run(t.Context(), countOnce, 0, "held"); err != nil {
				t.Errorf("a call that was held: %v", err)
			}
		})
	}
	redistest.Eventually(t, time.Minute, func() bool { return c.held.Load() == 2 }, "two calls are under way")
}

// wait calls f n times at once, and returns when all calls wait.
func (c *crowd) wait(t *testing.T, n int, f func(i int)) {
	t.Helper()
	before := c.e.WaitingCalls()
	for i := range n {
		c.all.Go(func() { f(i) })
	}
	redistest.Eventually(t, time.Minute, func() bool { return c.e.WaitingCalls() == before+n }, "calls wait")
}

// open lets the calls under way go on, and all others after them, until all have ended.
func (c *crowd) open() {
	c.holds.Store(false)
	close(c.release)
	c.all.Wait()
	c.release = make(chan struct{})
}

func TestCallsOfTheSameMomentShareAPipeline(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		c := newCrowd(t, b)
		c.fill(t)
		c.wait(t, 130, func(i int) {
			text := fmt.Sprint("caller ", i)
			reply, err := c.run(t.Context(), []*script.Script{countOnce, countAgain}[i%2], 1, text)
			if fields, ok := reply.([]any); err != nil || !ok || fields[1] != text {
				t.Errorf("%s: %v, %v", text, reply, err)
			}
		})
		c.open()
		if got := c.lengths(); len(got) != 2 || got[0]+got[1] != 130 || max(got[0], got[1]) != 128 {
			t.Errorf("pipelines of %v calls, want 128 and 2", got)
		}
		if got := c.sum(t); got != 130 {
			t.Errorf("counted %d, want 130", got)
		}
	})
}

func TestALoneCallerUsesNoPipeline(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		c := newCrowd(t, b)
		for range 10 {
			if _, err := c.run(t.Context(), countOnce, 1, ""); err != nil {
				t.Fatal(err)
			}
		}
		c.fill(t) // two callers neither
		c.open()
		if got := c.lengths(); len(got) != 0 {
			t.Errorf("pipelines of %v calls, want none", got)
		}
	})
}

func TestWithoutSharedCallsEachIsSentByItself(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		shared := newCrowd(t, b)
		r := &road{release: make(chan struct{})}
		rdb := b.NewClient(t)
		if cluster, ok := rdb.(*redis.ClusterClient); ok {
			cluster.OnNewNode(func(node *redis.Client) { node.AddHook(r) })
		} else {
			rdb.AddHook(r)
		}
		c := &crowd{road: r, e: guardtest.NewEngineOver(b, rdb, core.WithoutSharedCalls())}
		r.holds.Store(true)
		for range 20 {
			c.all.Go(func() {
				if _, err := c.run(t.Context(), countOnce, 1, ""); err != nil {
					t.Error(err)
				}
			})
		}
		redistest.Eventually(t, time.Minute, func() bool { return r.held.Load() >= 10 }, "calls are under way")
		c.open()
		if got := c.lengths(); len(got) != 0 {
			t.Errorf("pipelines of %v calls, want none", got)
		}
		if got := shared.sum(t); got != 20 {
			t.Errorf("counted %d, want 20", got)
		}
	})
}

// lateContext is a context whose deadline is over when the test says so.
type lateContext struct {
	context.Context
	over chan struct{}
}

func (c lateContext) Done() <-chan struct{} { return c.over }

func (c lateContext) Err() error {
	select {
	case <-c.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// TestACallerThatLeavesTheWaitIsNotSent: its command does not run, there is nothing to undo, and the others
// go on.
//
// Promise: Each call of a pipeline has its own reply, deadline and cancellation. A call that ends before it
// is sent never runs.
func TestACallerThatLeavesTheWaitIsNotSent(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		c := newCrowd(t, b)
		c.fill(t)
		c.wait(t, 3, func(int) {
			if _, err := c.run(t.Context(), countOnce, 1, ""); err != nil {
				t.Error(err)
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		var left sync.WaitGroup
		left.Add(2)
		base := kit.Register(c.e, "own", "own")
		leaves := func(ctx context.Context, want error) {
			defer left.Done()
			_, err := c.run(ctx, countAgain, 100, "")
			if !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
			base.UndoLater(err, func(context.Context) error {
				t.Error("a call that was not sent is undone")
				return nil
			})
		}
		c.wait(t, 1, func(int) { leaves(ctx, context.Canceled) })
		cancel()
		late := lateContext{context.Background(), make(chan struct{})}
		c.wait(t, 1, func(int) { leaves(late, context.DeadlineExceeded) })
		close(late.over)
		left.Wait()
		c.open()
		if got := c.sum(t); got != 3 {
			t.Errorf("counted %d, want 3", got)
		}
		if err := core.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestACallerThatLeavesAPipelineLeavesAlone: it hears of its own end at once, and the others get their
// answers.
func TestACallerThatLeavesAPipelineLeavesAlone(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		c := newCrowd(t, b)
		arrived, goOn := make(chan struct{}), make(chan struct{})
		c.pipeline = func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
			err := next(ctx, cmds)
			close(arrived)
			<-goOn
			return err
		}
		c.fill(t)
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		c.wait(t, 1, func(int) { // the first of the pipeline
			_, err := c.run(ctx, countAgain, 1, "")
			left <- err
		})
		c.wait(t, 5, func(i int) {
			reply, err := c.run(t.Context(), countOnce, 1, fmt.Sprint(i))
			if fields, ok := reply.([]any); err != nil || !ok || fields[1] != fmt.Sprint(i) {
				t.Errorf("%d: %v, %v", i, reply, err)
			}
		})
		var opens sync.WaitGroup
		opens.Go(c.open)
		<-arrived
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want context.Canceled", err)
		}
		close(goOn)
		opens.Wait()
		if got := c.sum(t); got != 6 {
			t.Errorf("counted %d, want 6: what was sent runs", got)
		}
	})
}

// TestALostPipelineIsOneFailure: a breaker counts connections that are lost, not the calls that shared one.
func TestALostPipelineIsOneFailure(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		quiet(t)
		var seen guardtest.Recorder
		c := newCrowd(t, b, core.WithBreaker(2, 0), core.WithObserver(&seen))
		opened := func() bool {
			seen.Mu.Lock()
			defer seen.Mu.Unlock()
			return slices.ContainsFunc(seen.Events, func(e core.Event) bool {
				return e.Breaker != nil && e.Breaker.Open
			})
		}
		c.pipeline = func(_ context.Context, cmds []redis.Cmder, _ redis.ProcessPipelineHook) error {
			c.under.Wait() // their answers would begin the count of failures anew
			for _, cmd := range cmds {
				cmd.SetErr(errNoReply)
			}
			return errNoReply
		}
		c.fill(t)
		c.wait(t, 20, func(int) {
			if _, err := c.run(t.Context(), countOnce, 1, ""); !errors.Is(err, errNoReply) {
				t.Errorf("%v, want the error of the connection", err)
			}
		})
		c.open()
		if opened() {
			t.Error("the breaker has opened after one failure")
		}
		c.fails.Store(true)
		if _, err := c.run(t.Context(), countOnce, 1, ""); !errors.Is(err, errNoReply) {
			t.Errorf("%v, want the error of the connection", err)
		}
		// A probe may be answered at once, and its goroutine then reports both changes.
		redistest.Eventually(t, time.Minute, opened, "the breaker has opened after two failures")
	})
}

// errNoReply is a failure for a breaker. It starts no probe.
var errNoReply = errors.New("no reply")

// TestNoCommandOfAPipelineIsSentTwice: a lost reply loses those behind it too. A script that counts is sent
// once, whatever go-redis may do with a pipeline; the others are sent again by their own callers.
func TestNoCommandOfAPipelineIsSentTwice(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		c := newCrowdOver(t, b, b.NewClientWith(t, faults))
		c.fill(t)
		const callers = 20
		var lost atomic.Int64
		c.wait(t, callers, func(i int) {
			if i%2 == 0 {
				if _, err := c.run(t.Context(), countOnce, 1, fmt.Sprint("once ", i)); err != nil {
					lost.Add(1)
				}
				return
			}
			text := fmt.Sprint("again ", i)
			reply, err := c.run(t.Context(), countAgain, 1000, text)
			if fields, ok := reply.([]any); err != nil || !ok || fields[1] != text {
				t.Errorf("%s: %v, %v", text, reply, err)
			}
		})
		faults.SwallowReply("once ")
		c.open()
		if faults.Swallowed() != 1 || lost.Load() == 0 {
			t.Errorf("%d replies were lost, %d calls failed", faults.Swallowed(), lost.Load())
		}
		if got := c.sum(t); got%1000 > callers/2 || got%1000 < callers/2-int(lost.Load()) ||
			got/1000 < callers/2 || got/1000 > callers {
			t.Errorf("counted %d, want %d at most once each, and as many at least once", got, callers/2)
		}
	})
}

func TestPipelinesOfScriptsThatAServerDoesNotKnow(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		c := newCrowd(t, b)
		c.fill(t)
		if err := b.ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error {
			return c.ScriptFlush(ctx).Err()
		}); err != nil {
			t.Fatal(err)
		}
		c.wait(t, 20, func(i int) {
			if _, err := c.run(t.Context(), countOnce, 1, ""); err != nil {
				t.Error(err)
			}
		})
		c.open()
		if got := c.sum(t); got != 20 {
			t.Errorf("counted %d, want 20", got)
		}
	})
}

// TestCallsOfAPipelineFollowTheirSlot: a server that does not have the slot any more has run none of them.
func TestCallsOfAPipelineFollowTheirSlot(t *testing.T) {
	redistest.LeftToCI(t)
	b := redistest.Cluster(t)
	for _, answer := range []answered{"MOVED 1 127.0.0.1:1", "ASK 1 127.0.0.1:1", "READONLY You can't write",
		"TRYAGAIN Multiple keys request", "CLUSTERDOWN The cluster is down"} {
		t.Run(strings.Fields(string(answer))[0], func(t *testing.T) {
			c := newCrowd(t, b)
			before := c.sum(t)
			c.pipeline = func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
				c.mu.Lock()
				c.pipeline = nil
				c.mu.Unlock()
				for _, cmd := range cmds[:5] {
					cmd.SetErr(answer)
				}
				return next(ctx, cmds[5:])
			}
			c.fill(t)
			c.wait(t, 10, func(i int) {
				text := fmt.Sprint(i)
				reply, err := c.run(t.Context(), countOnce, 1, text)
				if fields, ok := reply.([]any); err != nil || !ok || fields[1] != text {
					t.Errorf("%s: %v, %v", text, reply, err)
				}
			})
			c.open()
			if got := c.sum(t) - before; got != 10 {
				t.Errorf("counted %d, want 10", got)
			}
		})
	}
}

// TestACommandThatGoRedisCannotWriteFailsAlone, and a long one keeps nobody waiting: neither shares a
// pipeline.
func TestACommandThatGoRedisCannotWriteFailsAlone(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		c := newCrowd(t, b)
		c.fill(t)
		c.wait(t, 5, func(int) {
			if _, err := c.run(t.Context(), countOnce, 1, ""); err != nil {
				t.Error(err)
			}
		})
		c.holds.Store(false)
		if _, err := c.e.Run(t.Context(), countOnce, []string{c.key()}, struct{}{}); err == nil ||
			!strings.Contains(err.Error(), "can't marshal") {
			t.Errorf("%v, want the error of go-redis", err)
		}
		if _, err := c.run(t.Context(), countOnce, 1, strings.Repeat("x", 5000)); err != nil {
			t.Error(err)
		}
		c.open()
		if got := c.sum(t); got != 6 {
			t.Errorf("counted %d, want 6", got)
		}
	})
}

// TestSilentConnectionsDoNotHoldUpOthers: calls do not wait for long for those under way.
func TestSilentConnectionsDoNotHoldUpOthers(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		c := newCrowd(t, b)
		c.e.SetSharedWait(time.Millisecond)
		c.fill(t)
		var answered sync.WaitGroup
		for range 10 {
			answered.Go(func() {
				if _, err := c.run(t.Context(), countOnce, 1, ""); err != nil {
					t.Error(err)
				}
			})
		}
		answered.Wait() // the two under way have no answer yet
		if got := c.sum(t); got != 10 {
			t.Errorf("counted %d, want 10", got)
		}
		c.open()
	})
}

// TestAHookThatPanicsInAPipelineEndsNothing: the process goes on, and so do calls.
func TestAHookThatPanicsInAPipelineEndsNothing(t *testing.T) {
	b := redistest.Mini(t)
	c := newCrowd(t, b)
	c.pipeline = func(context.Context, []redis.Cmder, redis.ProcessPipelineHook) error { panic("a hook") }
	c.fill(t)
	c.wait(t, 5, func(int) {
		if _, err := c.run(t.Context(), countOnce, 1, ""); err == nil || !strings.Contains(err.Error(), "a hook") {
			t.Errorf("%v, want the panic", err)
		}
	})
	c.open()
	c.pipeline = nil
	c.fill(t)
	c.wait(t, 5, func(int) {
		if _, err := c.run(t.Context(), countOnce, 1, ""); err != nil {
			t.Error(err)
		}
	})
	c.open()
	if got := c.sum(t); got != 5 {
		t.Errorf("counted %d, want 5", got)
	}
}
