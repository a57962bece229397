package histories

import (
	"context"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/lua"
)

// An attempt that may wait is several operations within the time of its call: it joins the line, and it is
// granted its permits when it is at the head and they are free. One that nobody stands in front of does both
// at one moment. An attempt that gives up, or fails, has also left; what it did before, the model is not
// told. The caller waits until its undo has been answered, so that all operations have an end.
//
// Callers do not hear when they have joined. So the order of a line is known from who is granted permits, and
// from looks, which say how many wait.

const (
	seats = 2
	// waitingCallers is how many callers a history has: each has several operations at a time.
	waitingCallers = 5
	// waitingLongest is how long a history may take: a process that is silent when it is its turn is passed by.
	waitingLongest = 280 * time.Millisecond
)

type waitIn struct {
	Op   string // join, grant, perhaps, leave, look
	Cost int64  // 1 or 2
	Call int
}

type waitOut struct{ Held, Waiting int64 }

type waitState struct {
	held [3]set     // calls that hold permits, by their cost
	dead set        // calls that have left
	line [most]int8 // calls, the first first
	long int8
}

func (s *waitState) sum() int64 {
	return int64(bits.OnesCount64(uint64(s.held[1])) + 2*bits.OnesCount64(uint64(s.held[2])))
}

// place returns the place of a call in line, or -1.
func (s *waitState) place(call int) int { return slices.Index(s.line[:s.long], int8(call)) }

// without removes the place from the line.
func (s *waitState) without(place int) {
	copy(s.line[place:], s.line[place+1:])
	s.long--
	s.line[s.long] = 0
}

// grants gives a call its permits if it is first, and reports whether it did.
func (s *waitState) grants(in waitIn) bool {
	if s.place(in.Call) != 0 || s.sum()+in.Cost > seats {
		return false
	}
	s.without(0)
	s.held[in.Cost] = s.held[in.Cost].with(in.Call)
	return true
}

var waitModel = deterministic(func(s waitState, in, out any) (bool, waitState) {
	op, right := in.(waitIn), true
	switch op.Op {
	case "join":
		if right = s.long < most; right && !s.dead.has(op.Call) {
			s.line[s.long] = int8(op.Call)
			s.long++
		}
	case "grant":
		right = s.grants(op)
	case "perhaps":
		s.grants(op)
	case "leave":
		if i := s.place(op.Call); i >= 0 {
			s.without(i)
		}
		s.held[op.Cost], s.dead = s.held[op.Cost].without(op.Call), s.dead.with(op.Call)
	case "look":
		answer, known := out.(waitOut)
		right = !known || answer.Held == s.sum() && answer.Waiting == int64(s.long)
	}
	return right, s
})

// waiters have leases that outlast a history.
func waiters() subject {
	return subject{name: "semaphore, waiting", model: waitModel,
		open: func(t *testing.T, w *world) (func(*history) error, func(*caller, int)) {
			var guards []*semaphore.Guard
			for _, e := range w.engines {
				o := semaphore.Options{Max: seats, Lease: time.Hour, Wait: time.Minute}
				guards = append(guards, semaphore.New(e, "waiting", o))
			}
			return func(*history) error { return nil }, func(c *caller, process int) {
				waitCall(t, c, guards[process])
			}
		}}
}

// waitCall waits for permits and gives them back, or gives up soon; or it looks.
func waitCall(t *testing.T, c *caller, g *semaphore.Guard) {
	n, ok := c.next()
	if !ok {
		return
	}
	in := waitIn{Op: "look", Cost: 1 + c.rng.Int64N(2), Call: n}
	a := core.Attempt{Actor: fmt.Sprint("op ", n), Resource: c.name, Cost: in.Cost}
	if c.rng.IntN(4) == 0 {
		c.do(in, func() (any, error) {
			s, err := g.Peek(t.Context(), a)
			return waitOut{s.Held, s.Waiting}, err
		})
		return
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if c.rng.IntN(3) == 0 {
		giveUp := time.AfterFunc(time.Duration(c.rng.IntN(2000))*time.Microsecond, cancel)
		defer giveUp.Stop()
	}
	c.world.step()
	begun := c.now()
	d, err := g.Check(ctx, a)
	ops := []string{"join", "grant"}
	if err != nil || !d.Allowed {
		ops = []string{"join", "perhaps", "leave"}
		if err != nil {
			c.failed.Add(1)
		}
		if err := g.Engine().Drain(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}
	returned := c.now()
	for _, in.Op = range ops {
		c.add(porcupine.Operation{ClientId: c.number, Input: in, Call: begun, Return: returned})
	}
	if !d.Allowed {
		return
	}
	if c.resends { // an earlier sending of the first call may have found permits, and has given them back
		c.lateCopy(waitIn{Cost: in.Cost, Call: most + n}, begun)
	}
	in.Op = "leave"
	c.do(in, func() (any, error) {
		var err error
		for range 100 { // a request's settlement is repeated as well
			if err = g.Settle(context.WithoutCancel(t.Context()), d, core.Commit); err == nil {
				break
			}
		}
		return nil, err
	})
}

// lateCopy records what a copy of a call may have done that nobody has heard of: see sentTwice.
func (c *caller) lateCopy(in waitIn, begun int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, in.Op = range []string{"join", "perhaps", "leave"} {
		c.late = append(c.late, porcupine.Operation{ClientId: c.number, Input: in, Call: begun, Return: never})
	}
}

// TestWaitingAttemptsAreServedInAnOrder lets attempts of four processes wait for permits while each nemesis
// breaks things, in many short histories: nobody is served before those who stood in line when they came.
func TestWaitingAttemptsAreServedInAnOrder(t *testing.T) {
	seed, calls := rand.Uint64(), 1500
	if redistest.Soak() {
		calls = 30_000
	}
	t.Logf("seed %d", seed)
	j := newJudge(t)
	servers := t // of the cluster
	cluster := sync.OnceValue(func() *redistest.ClusterServers { return redistest.StartCluster(servers) })
	var text []string
	var sum counts
	for i, n := range nemeses {
		if !slices.Contains([]string{"none", "lost replies", "cut connections", "SCRIPT FLUSH", "cluster failover"},
			n.name) {
			continue
		}
		t.Run(n.name, func(t *testing.T) {
			w := n.world(t, cluster)
			w.breaks, w.callers, w.rng = n.act != nil, waitingCallers, rand.New(rand.NewPCG(seed, uint64(i)))
			var made []*history
			if n.all { // a fault takes long, so there is one in each history
				made = handedOver(t, n, w, seed, calls/500)
			} else {
				made = cell(t, n, w, waiters(), seed, calls)
			}
			quick := slices.DeleteFunc(slices.Clone(made), func(h *history) bool { return h.took() > waitingLongest })
			var c counts
			j.judge(n, &c, quick)
			j.wait()
			text = append(text, fmt.Sprintf("%-16s %d histories, %d operations, %d failed, %d undecided, %d too slow",
				n.name, c.histories, c.calls, c.unknown, c.undecided, len(made)-len(quick)))
			sum.histories += c.histories
			sum.undecided += c.undecided
		})
	}
	t.Log("\n" + strings.Join(text, "\n"))
	if sum.histories == 0 || 10*sum.undecided > sum.histories {
		t.Errorf("%d of %d histories could not be decided in time", sum.undecided, sum.histories)
	}
}

// handedOver makes so many histories, in each of which the nemesis acts once.
func handedOver(t *testing.T, n nemesis, w *world, seed uint64, histories int) (made []*history) {
	t.Helper()
	s := waiters()
	begin, call := s.open(t, w)
	w.still, w.replicas = true, false // nothing is lost
	rng := rand.New(rand.NewPCG(seed, 1<<33))
	for round := range histories {
		h := once(t, n, w, []*taker{{subject: s, begin: begin, call: call}}, rng, round)[0]
		if h != nil {
			made = append(made, h)
		}
	}
	return made
}

// took returns how long the history took.
func (h *history) took() time.Duration {
	last := int64(0)
	for _, op := range h.ops {
		if op.Return != never {
			last = max(last, op.Return)
		}
	}
	return time.Duration(last)
}

// TestOvertakingIsFound: the checker rejects a history where attempts are served in another order, and where
// those who come overtake those who wait.
func TestOvertakingIsFound(t *testing.T) {
	for _, m := range []mutation{
		{"who comes overtakes", "", shared(redistest.Single), lua.Source("semaphore/acquire"),
			"elseif held + cost > max or others and redis.call('ZCOUNT', present, '(' .. now, now + 3000) > 0 then",
			"elseif held + cost > max then"},
		{"the last is served first", "", shared(redistest.Single), lua.Source("semaphore/wait"),
			"redis.call('ZADD', line, last, member)", "redis.call('ZADD', line, -last, member)"},
	} {
		t.Run(m.name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			if strings.Count(m.script, m.from) != 1 {
				t.Fatalf("the script has %q %d times", m.from, strings.Count(m.script, m.from))
			}
			w := m.world(t)
			for _, rdb := range w.clients {
				rdb.AddHook(changed{sha(m.script), strings.Replace(m.script, m.from, m.to, 1)})
			}
			w.callers = waitingCallers
			found(t, w, rand.New(rand.NewPCG(seed, 0)), waiters(), 400)
		})
	}
}
