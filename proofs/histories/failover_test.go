package histories

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// failover is the input of the operation that stands for the failover in a history: the primary is dead when
// it begins, and all processes use the new primary when it ends.
type failover struct{}

// lossyState is a state of a guard and the former ones that a failover may bring back.
type lossyState struct {
	now    any
	former []any // each once
	over   bool  // the failover has happened
}

// lossy lets a failover lose what the primary has not replicated: Redis replicates what it does in order, and
// after it has answered, so the new primary has the state of some earlier moment. That is all that may be
// lost; answers after the failover follow from that state. kept reports that an answer waited for the
// replica, which so has all until then. back returns what the state is when an earlier moment comes back.
func lossy(
	m porcupine.Model, kept func(in, out any) bool, back func(now, earlier any) []any,
) porcupine.Model {
	equal := m.Equal
	if equal == nil {
		equal = func(a, b any) bool { return a == b }
	}
	has := func(all []any, state any) bool {
		return slices.ContainsFunc(all, func(other any) bool { return equal(state, other) })
	}
	model := porcupine.NondeterministicModel{
		Partition: withFailovers(m.Partition),
		Init:      func() []any { return []any{lossyState{now: m.Init()}} },
		Step: func(state, in, out any) (next []any) {
			s := state.(lossyState)
			if _, is := in.(failover); is {
				for _, earlier := range append(s.former, s.now) {
					for _, state := range back(s.now, earlier) {
						next = append(next, lossyState{now: state, over: true})
					}
				}
				return next
			}
			right, now := m.Step(s.now, in, out)
			if !right {
				return nil
			}
			switch {
			case s.over || kept(in, out):
				s.former = nil
			case !equal(s.now, now) && !has(s.former, s.now):
				s.former = append(slices.Clone(s.former), s.now)
			}
			s.now = now
			return []any{s}
		},
		Equal: func(a, b any) bool {
			s, other := a.(lossyState), b.(lossyState)
			if s.over != other.over || len(s.former) != len(other.former) || !equal(s.now, other.now) {
				return false
			}
			return !slices.ContainsFunc(s.former, func(state any) bool { return !has(other.former, state) })
		},
	}
	return model.ToModel()
}

// withFailovers partitions a history as before, and puts failovers into each part.
func withFailovers(partition func([]porcupine.Operation) [][]porcupine.Operation,
) func([]porcupine.Operation) [][]porcupine.Operation {
	if partition == nil {
		return nil
	}
	return func(ops []porcupine.Operation) [][]porcupine.Operation {
		var failovers, others []porcupine.Operation
		for _, op := range ops {
			if _, is := op.Input.(failover); is {
				failovers = append(failovers, op)
			} else {
				others = append(others, op)
			}
		}
		parts := partition(others)
		for i := range parts {
			parts[i] = append(parts[i], failovers...)
		}
		return parts
	}
}

// neverKept is for guards that are Fast.
func neverKept(_, _ any) bool { return false }

// wholly is for guards that have all in one slot.
func wholly(_, earlier any) []any { return []any{earlier} }

// inParts is for sales of several buckets. In a cluster the first is in the slots of the master that dies,
// where others may be, too. On one server they all come back at one moment.
func inParts(cluster bool) func(now, earlier any) []any {
	return func(now, earlier any) []any {
		var all, first []any
		for _, state := range now.([]any) {
			for _, other := range earlier.([]any) {
				all = append(all, state.(saleState).afterFailover(other.(saleState), true))
				first = append(first, state.(saleState).afterFailover(other.(saleState), false))
			}
		}
		if cluster {
			return []any{all, first}
		}
		return []any{all}
	}
}

// comesBack is the function by which lossy knows what a failover brings back.
func (s subject) comesBack(cluster bool) func(now, earlier any) []any {
	if s.buckets {
		return inParts(cluster)
	}
	return wholly
}

// atMostOnce are the guards whose calls are never sent again.
var atMostOnce = []string{"sliding window", "fixed window", "token bucket", "bans"}

// failedOver records the failover in the history. A call that was under way when the primary died may have
// been sent again: then it has happened on the dead primary, where others may have seen it, and once more on
// the new one. It counts once where both know it.
func (h *history) failedOver(begun, ended time.Time) {
	again := !slices.Contains(atMostOnce, h.guard.name)
	from, to := begun.Sub(h.begun).Nanoseconds(), ended.Sub(h.begun).Nanoseconds()
	for _, op := range slices.Clone(h.ops) {
		underWay := op.Call < to && op.Return > from
		if again && underWay && (h.world.resend || op.ClientId%2 == 0) && !onlyReads(op.Input) {
			op.Output, op.Return = unknown{}, never
			h.ops = append(h.ops, op)
		}
	}
	h.ops = append(h.ops, porcupine.Operation{ClientId: -1, Input: failover{}, Call: from, Return: to})
}

// onlyReads reports whether a call changes nothing, or is never sent again.
func onlyReads(in any) bool {
	switch in := in.(type) {
	case saleIn:
		return in.Op == "status"
	case voteIn:
		return in.Op == "tally"
	case quotaIn:
		return in.Op == "used"
	case permitIn:
		return in.Op == "look"
	case lockIn:
		return in.Op == "look"
	case packetIn:
		return in.Op == "verify"
	case budgetIn:
		return in.Op != "undo"
	}
	return false
}

// taker is a guard that takes part when histories of all guards are made together.
type taker struct {
	subject
	cell      int // its number among all
	begin     func(*history) error
	call      func(*caller, int)
	histories []*history
}

// together makes histories of all guards at the same time, so that one fault, which takes long, is one for
// all of them. It comes at a random call. Callers that have a call under way hear of it, and all others wait
// until it is mended. The clock stands still.
func together(t *testing.T, n nemesis, w *world, all []subject, seed uint64, calls int, j *judge,
	cells []counts,
) {
	t.Helper()
	var takers []*taker
	for i, s := range all {
		if !n.isFor(w, s) {
			continue
		}
		if n.loses {
			s.model = lossy(s.model, s.keeps(), s.comesBack(w.cluster != nil))
		}
		begin, call := s.open(t, w)
		takers = append(takers, &taker{subject: s, cell: i, begin: begin, call: call})
	}
	if w.still = true; w.callers == 0 {
		w.callers = 8
	}
	rng := rand.New(rand.NewPCG(seed, 1<<33))
	made := 0 // calls of the first guard
	for round := 0; round < n.acts || made < calls; round++ {
		for i, h := range once(t, n, w, takers, rng, round) {
			if h == nil {
				continue
			}
			takers[i].histories = append(takers[i].histories, h)
			if i == 0 {
				made += len(h.ops)
			}
		}
	}
	for _, taker := range takers {
		j.judge(n, &cells[taker.cell], taker.histories)
	}
}

// once makes one history of each guard, and lets the nemesis act once.
func once(t *testing.T, n nemesis, w *world, takers []*taker, rng *rand.Rand, round int) []*history {
	t.Helper()
	w.moment, w.ready = make(chan struct{}), new(sync.WaitGroup)
	w.ready.Add(len(takers))
	w.until.Store(1 + rng.Int64N(int64(most*len(takers)*3/4)))
	w.target = (w.target + 1) % 3
	made := make([]*history, len(takers))
	var making sync.WaitGroup
	for i, s := range takers {
		seed, name := rng.Uint64(), w.aimed(nameOf(s.subject, round))
		making.Go(func() { made[i], _ = s.run(w, name, seed, s.begin, s.call) }) // nil where it could not begin
	}
	done := make(chan struct{})
	go func() { making.Wait(); close(done) }()
	select {
	case <-w.moment:
	case <-done:
	}
	begun := time.Now()
	n.act(t.Context(), t, w)
	ended := time.Now()
	<-done
	for _, h := range made {
		if h != nil && n.loses {
			h.failedOver(begun, ended)
		}
	}
	return made
}

// nameOf names a history.
func nameOf(s subject, number int) string {
	return fmt.Sprintf("%s-%d", strings.NewReplacer(" ", "-", ",", "").Replace(s.name), number)
}

// isFor reports whether the nemesis is for a guard. Acked ones need replicas. A clock that jumps is for
// models that know it, and a failover that loses calls is not for fences.
func (n nemesis) isFor(w *world, s subject) bool {
	if w.jumps && !s.timed || n.loses && s.fenced {
		return false
	}
	return n.loses || !s.acked
}

// replicated waits until a replica has all that the primary of a key has, so that a failover does not lose
// what a history begins with.
func (w *world) replicated(ctx context.Context, key string) error {
	rdb, isOne := w.admin.(*redis.Client)
	if c, is := w.admin.(*redis.ClusterClient); is {
		var err error
		if rdb, err = c.MasterForKey(ctx, key); err != nil {
			return err
		}
	} else if !isOne {
		return fmt.Errorf("a client of another kind: %T", w.admin)
	}
	conn := rdb.Conn()
	defer func() { _ = conn.Close() }()
	// WAIT counts the writes of its connection.
	if err := conn.Set(ctx, key, "x", time.Minute).Err(); err != nil {
		return err
	}
	if n, err := conn.Wait(ctx, 1, 10*time.Second).Result(); err != nil || n < 1 {
		return fmt.Errorf("%d replicas have it: %w", n, err)
	}
	return nil
}

// third is the third of a cluster's slots that a slot is in: that of a master in the beginning, which goes
// from it to its replica and back.
func third(slot int) int { return slot * 3 / (1 << 14) }

// aimed makes a name whose keys are in the third of the slots that the nemesis aims at.
func (w *world) aimed(name string) string {
	if w.cluster == nil {
		return name
	}
	for n := 0; ; n++ {
		if aimed := fmt.Sprint(name, "-", n); third(redistest.Slot("{"+aimed+"}")) == w.target {
			return aimed
		}
	}
}

// aSlot is one of the slots that the nemesis aims at.
func (w *world) aSlot() int { return w.target*(1<<14)/3 + 1000 }

// fewCallers is how many callers a history has where what has happened may be lost: an order is hard to find.
const fewCallers = 4

// sentinels is a world on a primary with a replica that sentinels watch.
func sentinels(t *testing.T) *world {
	w := &world{sentinels: redistest.StartSentinels(t, 1), pool: 16, replicas: true, callers: fewCallers}
	w.start(t, "histories", w.sentinels.Options(), deadline)
	return w
}

// failingOver is a world on a cluster whose masters fail over. Its clients send calls again that fail, all of
// them.
func failingOver(prefix string) func(t *testing.T, c *redistest.ClusterServers) *world {
	return func(t *testing.T, c *redistest.ClusterServers) *world {
		w := &world{cluster: c, pool: 16, replicas: true, resend: true, callers: fewCallers}
		w.start(t, prefix, c.Options(), deadline)
		return w
	}
}

// lag lets callers go on for a moment at a primary whose replica is cut off, so that there is something to
// lose. Then it kills the primary.
func (w *world) lag(ctx context.Context, t *testing.T, primary, replica *redistest.Server) {
	rdb := primary.Client(t)
	if w.rng.IntN(4) > 0 {
		replica.Pause()
		defer replica.Resume()
		if err := rdb.ClientKillByFilter(ctx, "type", "replica").Err(); err != nil { // and what is on its way to it
			t.Error(err)
		}
		pass(ctx, w.between(0, 3*ms))
	}
	w.broken.Lock()
	primary.Kill()
}

// killPrimary lets Sentinel replace a dead primary, which comes back as a replica of its successor.
func killPrimary(ctx context.Context, t *testing.T, w *world) {
	old := w.sentinels.Primary()
	replica := w.sentinels.Servers[0]
	if replica == old {
		replica = w.sentinels.Servers[1]
	}
	w.lag(ctx, t, old, replica)
	defer w.broken.Unlock()
	heir := w.sentinels.AwaitFailover(old)
	old.Start()
	old.ReplicaOf(heir)
	w.recovered(t)
}

// killMaster lets the replica of a dead master of the cluster replace it.
func killMaster(ctx context.Context, t *testing.T, w *world) {
	slot := w.aSlot()
	old := w.cluster.MasterOfSlot(slot)
	replica := w.cluster.ReplicaOfSlot(slot)
	w.lag(ctx, t, old, replica)
	defer w.broken.Unlock()
	w.cluster.Replace(slot, old, replica)
	w.cluster.Rejoin(old)
	w.recovered(t)
}

// handOver lets a master of the cluster hand its slots over to its replica. Nothing may be lost.
func handOver(ctx context.Context, _ *testing.T, w *world) {
	pass(ctx, w.between(0, 3*ms))
	w.cluster.Failover(w.aSlot())
}

// keeps is the function by which lossy knows what a failover cannot lose.
func (s subject) keeps() func(in, out any) bool {
	if s.kept == nil {
		return neverKept
	}
	return s.kept
}

// ackedSale is a sale of an Acked guard. What it confirmed is never lost. What it did not confirm may be
// lost, and so may what refusals and figures say.
func ackedSale() subject {
	sale := seckill.Sale{Stock: saleStock, PerBuyer: perBuyer, Hold: saleHold}
	return subject{
		name: "sale, Acked", model: ackedModel(), acked: true,
		kept: func(in, out any) bool {
			answer, known := out.(saleOut)
			return known && answer.Reason == core.ReasonOK && in.(saleIn).Op != "status"
		},
		open: func(t *testing.T, w *world) (func(*history) error, func(*caller, int)) {
			var guards []*seckill.Guard
			for _, e := range w.engines {
				guards = append(guards, seckill.New(e, "acked", seckill.Options{
					Durability: seckill.Acked, AckWithin: 50 * ms,
				}))
			}
			begin := func(h *history) error {
				_, err := guards[0].Open(t.Context(), h.name, sale)
				return err
			}
			return begin, func(c *caller, process int) { ackedCall(t, c, guards[process]) }
		},
	}
}

// ackedModel is that of a sale, and knows that a reservation which was not confirmed stays held, but not for
// the call that made it.
func ackedModel() porcupine.Model {
	m := saleModel(false)
	step := m.Step
	m.Step = func(state, in, out any) (bool, any) {
		op := in.(saleIn)
		if op.Op != "forget" {
			return step(state, in, out)
		}
		var next []any
		for _, one := range state.([]any) {
			s := one.(saleState)
			s.reservations[op.ID].calls = s.reservations[op.ID].calls.without(op.Call)
			next = append(next, s)
		}
		return true, next
	}
	m.StepContext = nil
	return m
}

// ackedCall reserves, and confirms or cancels by name; or it looks.
func ackedCall(t *testing.T, c *caller, g *seckill.Guard) {
	n, ok := c.next()
	if !ok {
		return
	}
	in := saleIn{Op: "reserve", Buyer: c.rng.IntN(saleBuyers), Units: 1, ID: n, Call: n, At: c.at}
	if c.rng.IntN(8) == 0 {
		in.Op = "status"
		c.do(in, func() (any, error) {
			s, err := g.Status(t.Context(), c.name)
			return saleOut{Left: s.Left, Held: s.Held, Sold: s.Sold}, err
		})
		return
	}
	answer := func(d core.Decision, err error) (any, error) {
		if err == nil && d.Reason == core.ReasonUnconfirmed {
			err = core.ErrUnconfirmed
		}
		return saleOut{Reason: d.Reason, Replayed: d.Replayed, Kept: d.Kept, Left: d.Remaining,
			Resent: c.resends}, err
	}
	var d core.Decision
	known := c.do(in, func() (_ any, err error) {
		d, err = g.Check(t.Context(), core.Attempt{
			Actor: fmt.Sprint("buyer ", in.Buyer), Resource: c.name, Cost: in.Units, ID: fmt.Sprint("op ", n),
		})
		return answer(d, err)
	})
	switch {
	case !known: // taken back, or, where only the replica was late, held without this call
		for _, in.Op = range []string{"undo", "forget"} {
			c.later(in)
		}
	case !d.Allowed:
	case c.rng.IntN(4) == 0:
		in.Op = "cancel"
		c.do(in, func() (any, error) { return answer(g.Cancel(t.Context(), d.Attempt)) })
	case c.rng.IntN(4) > 0:
		in.Op = "confirm"
		c.do(in, func() (any, error) { return answer(g.Confirm(t.Context(), d.Attempt)) })
	}
}
