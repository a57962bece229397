package histories

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// most is how many calls a history has at most, so that a set of them fits into a word.
const most = 32

// never is the return of a call whose outcome is unknown.
const never = math.MaxInt64

// set is a set of calls of one history, by their numbers.
type set uint64

func (s set) has(call int) bool    { return s&(1<<call) != 0 }
func (s set) with(call int) set    { return s | 1<<call }
func (s set) without(call int) set { return s &^ (1 << call) }

// history is the record of what the callers of one guard asked and heard.
type history struct {
	name   string // of the poll, sale or actor, which no other history uses
	seed   uint64
	guard  subject
	world  *world
	begun  time.Time
	base   time.Time // of the test's clock when the history began
	calls  atomic.Int64
	failed atomic.Int64 // calls of which the outcome is unknown
	room   int          // the most calls in this process until the end of this phase

	shares [packetShares]int64 // of a red packet

	mu  sync.Mutex
	ops []porcupine.Operation
	// late are earlier sendings of calls that were refused, and what takes them back: see sentTwice.
	late []porcupine.Operation
}

// unknown is the output of a call of which the caller does not know whether it happened.
type unknown struct{}

// caller is one of the callers of a history.
type caller struct {
	*history
	number int
	at     int64 // milliseconds of the test's clock since the history began
	// resends: the client of the caller's process sends a call again when its reply is lost. The answer then
	// is the stored one, with the figures of the moment at which it was asked for.
	resends bool
	begun   int64 // the caller's last call
	rng     *rand.Rand
	parent  *parent // in an application that is to be killed
}

// next returns the number of the caller's next call, and false when the history is full.
func (c *caller) next() (int, bool) {
	n := int(c.calls.Add(1)) - 1
	return n, n < c.room
}

func (h *history) now() int64 { return time.Since(h.begun).Nanoseconds() }

func (h *history) add(op porcupine.Operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, op)
}

// do makes a call and records it. It reports whether the outcome is known. A call that was not sent has not
// happened, so it leaves no record.
func (c *caller) do(in any, call func() (out any, err error)) bool {
	if c.parent != nil {
		return c.parent.do(c, in, call)
	}
	c.world.step()
	c.begun = c.now()
	out, err := call()
	op := porcupine.Operation{ClientId: c.number, Input: in, Call: c.begun, Output: out, Return: c.now()}
	switch {
	case errors.Is(err, core.ErrBreakerOpen) && c.guard.single:
		return false
	case err != nil:
		op.Output, op.Return = unknown{}, never
		c.failed.Add(1)
	}
	c.add(op)
	return err == nil
}

// later records what may happen at any time from now on: the undo of a claim whose caller heard an error.
func (c *caller) later(in any) {
	if c.parent != nil {
		c.parent.tell(message{Kind: isLater, Caller: c.number, Value: in})
		return
	}
	c.add(porcupine.Operation{ClientId: c.number, Input: in, Call: c.now(), Output: unknown{}, Return: never})
}

// sentTwice records what may have happened besides a call that was refused, where the client may have sent it
// twice: the earlier sending arrives later, finds room, and is taken back. That is rare and makes a search
// long, so verdict looks at it only where there is no other explanation. An application's connections are
// never cut.
func (c *caller) sentTwice(claim, undo any) {
	if !c.resends || c.parent != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, in := range []any{claim, undo} {
		c.late = append(c.late, porcupine.Operation{ClientId: c.number, Input: in, Call: c.begun,
			Output: unknown{}, Return: never})
	}
}

// isUnknown reports whether the outcome of a call is unknown, so that the model accepts every answer.
func isUnknown(out any) bool { _, ok := out.(unknown); return ok }

// subject is a guard, how it is called, and the model that says what it may answer.
type subject struct {
	name  string
	model porcupine.Model
	// single: each call is one command. So a call that the breaker did not send has not happened.
	single bool
	// timed: the model knows the clock, which may jump between phases, so many times as far.
	timed bool
	jumps int
	// fenced: its fences follow the clock. The test's stands still, so that a failover which loses a claim gives
	// its fence again.
	fenced bool
	// buckets: it is spread over several slots, so a failover may bring back an earlier moment of a part.
	buckets bool
	// acked: it needs a replica, and kept reports that its answer waited for it.
	acked bool
	kept  func(in, out any) bool
	// phases is the number of phases of a history, between which the clock moves on by step. Zero means one.
	phases int
	step   time.Duration
	// open makes the guard, once for each process, and returns what begins a history and what lets a caller
	// make one call.
	open func(t *testing.T, w *world) (begin func(h *history) error, call func(c *caller, process int))
}

// nondeterministic makes a model whose step returns all states that may follow.
func nondeterministic[S comparable](step func(s S, in, out any) []S) porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { var s S; return []any{s} },
		Step: func(state, in, out any) []any {
			var next []any
			for _, s := range step(state.(S), in, out) {
				next = append(next, s)
			}
			return next
		},
	}
	return model.ToModel()
}

// deterministic makes a model whose step says whether the answer is right, and which state follows.
func deterministic[S comparable](step func(s S, in, out any) (bool, S)) porcupine.Model {
	return partitioned(nil, step)
}

// partitioned is deterministic for histories whose parts are checked one by one.
func partitioned[S comparable](parts func([]porcupine.Operation) [][]porcupine.Operation,
	step func(s S, in, out any) (bool, S),
) porcupine.Model {
	return porcupine.Model{
		Partition: parts,
		Init:      func() any { var s S; return s },
		Step:      func(state, in, out any) (bool, any) { return step(state.(S), in, out) },
	}
}

// run lets callers make one history, and returns it.
func (s subject) run(w *world, name string, seed uint64, begin func(h *history) error,
	call func(c *caller, process int),
) (*history, error) {
	rng := rand.New(rand.NewPCG(seed, 0))
	if w.jumps {
		w.nearMidnight(rng)
	}
	h := &history{name: name, seed: seed, guard: s, world: w, begun: time.Now(), base: w.clock.Now()}
	w.bases.Store(name, h.base)
	w.healthy()
	w.present.Store(name)
	if err := w.begin(h, begin); err != nil {
		return nil, err
	}
	callers := []int{8, 8, 8, 8, 12, 12, 16, 32}[rng.IntN(8)]
	if w.callers > 0 {
		callers = w.callers
	}
	phases := max(s.phases, 1)
	switch {
	case w.still:
		phases = 1
	case w.late:
		phases = 2
	case w.jumps:
		phases = 4
	}
	if callers > 8 && phases > 1 {
		phases = 2
	}
	each := max(most/callers/phases, 1)
	for phase := range phases {
		if err := h.enter(phase, rng); err != nil {
			return nil, err
		}
		var all sync.WaitGroup
		if w.app != nil {
			all.Go(func() { w.app.work(h, phase, phases, each) })
		}
		for i := range callers {
			all.Go(func() {
				process := i % len(w.engines)
				c := h.caller(i, uint64(1+i+phase*callers))
				c.resends = w.breaks && (process%2 == 0 || w.resend)
				for range each {
					call(c, process)
				}
			})
		}
		all.Wait()
	}
	if len(h.ops) == 0 {
		return nil, core.ErrBreakerOpen
	}
	return h, nil
}

// caller returns a caller who begins now.
func (h *history) caller(number int, seed uint64) *caller {
	return &caller{history: h, number: number, at: h.world.clock.Now().Sub(h.base).Milliseconds(),
		rng: rand.New(rand.NewPCG(h.seed, seed))}
}

// enter begins a phase.
func (h *history) enter(phase int, rng *rand.Rand) error {
	w := h.world
	h.room = most
	if w.app != nil {
		h.room -= killedCalls
	}
	switch {
	case w.late && phase == 0:
		h.room = most / 2 // so that there are calls that see what the late ones have left
	case w.late:
		if err := h.settled(); err != nil {
			return err
		}
		h.calls.Store(min(h.calls.Load(), most/2))
	case phase == 0:
	case w.jumps:
		w.clock.Advance(jump(rng, h.guard.jumps))
	default:
		w.clock.Advance(h.guard.step)
	}
	return nil
}

// settled waits until all undos have been answered. In a world where a late call arrives before that, no call
// of which the outcome is unknown is on its way any more.
func (h *history) settled() error {
	for _, e := range h.world.engines {
		if err := e.Drain(context.Background()); err != nil {
			return err
		}
	}
	for i := range h.ops {
		h.ops[i].Return = min(h.ops[i].Return, h.now())
	}
	return nil
}

// verdict checks the history. The search takes exponential time in the number of calls at once, so verdict
// first looks eagerly for easy answers: an order in which calls happened shortly before their ends, and
// unknown ones never. Such an order is also one of the whole history. Where there is none, the times in which
// calls may have happened grow to the whole calls. Only the plain search says that there is no order.
func (h *history) verdict() porcupine.CheckResult {
	const wholeCalls = int64(time.Hour / time.Microsecond)
	for _, micros := range []int64{20, 100, 400, 2000, wholeCalls} {
		var known, all []porcupine.Operation
		for _, op := range h.ops {
			if _, is := op.Input.(failover); is {
				known = append(known, op)
			} else if op.Return != never {
				op.Call = max(op.Call, op.Return-1000*micros)
				known = append(known, op)
			}
			all = append(all, op)
		}
		if eagerly(h.guard.model, known, 50*ms) ||
			len(known) < len(all) && eagerly(h.guard.model, all, 100*ms) {
			return porcupine.Ok
		}
	}
	patience := 300 * ms
	if redistest.Soak() {
		patience = time.Second
	}
	return h.plain(patience)
}

// plain is porcupine's own search.
func (h *history) plain(patience time.Duration) porcupine.CheckResult {
	result := porcupine.CheckOperationsTimeout(h.guard.model, h.ops, patience)
	if result == porcupine.Illegal && len(h.late) > 0 {
		return porcupine.CheckOperationsTimeout(h.guard.model, slices.Concat(h.ops, h.late), 10*patience)
	}
	return result
}

// String shows the history in the order of the calls' begins.
func (h *history) String() string {
	ops := slices.Clone(h.ops)
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var text strings.Builder
	fmt.Fprintf(&text, "%s, seed %d, %d calls (times in microseconds)\n", h.guard.name, h.seed, len(ops))
	for _, op := range ops {
		end := "never"
		if op.Return != never {
			end = fmt.Sprint(op.Return / 1000)
		}
		fmt.Fprintf(&text, "%3d %8d-%-8s %+v -> %+v\n", op.ClientId, op.Call/1000, end, op.Input, op.Output)
	}
	return text.String()
}
