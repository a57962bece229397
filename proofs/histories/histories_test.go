package histories

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

func subjects() []subject {
	var all []subject
	all = append(all, limits()...)
	all = append(all, budgets()...)
	all = append(all, polls()...)
	all = append(all, sales()...)
	return append(all, ackedSale(), packets(), quotas(), operationsOnce(), banned(), semaphores(), locks(),
		queues(), rooms())
}

// counts are the figures of one cell of the table.
type counts struct {
	histories, calls, unknown, undecided, violations int
}

// operations is how many calls the whole table has, about.
func operations() int {
	if redistest.Soak() {
		return 1_100_000 // some guards are not under every nemesis: a million in all
	}
	return 10_000
}

// TestEveryHistoryIsLinearizable lets many callers use each guard while each nemesis breaks things, in many
// short histories, and checks every history against the guard's model. It prints a table of guard and
// nemesis.
//
// Promise (Every guard): Histories of all guards and delay queues are linearizable under lost replies, cut
// connections, moving slots, failing servers and clock jumps. In those of semaphores and locks nobody waits.
func TestEveryHistoryIsLinearizable(t *testing.T) {
	seed := rand.Uint64()
	if text := os.Getenv("GATEHOUSE_SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("seed %d (GATEHOUSE_SEED=%d runs its callers again)", seed, seed)
	all := subjects()
	parts := 0.0
	for _, n := range nemeses {
		parts += 1 / float64(n.share)
	}
	perCell := int(float64(operations()) / parts / float64(len(all)))
	cells := make([][]counts, len(nemeses))
	j := newJudge(t)
	servers := t // of clusters, which several nemeses use
	cluster := sync.OnceValue(func() *redistest.ClusterServers { return redistest.StartCluster(servers) })
	for i, n := range nemeses {
		cells[i] = make([]counts, len(all))
		t.Run(n.name, func(t *testing.T) {
			w := n.world(t, cluster)
			w.breaks, w.loses = n.act != nil, n.loses
			w.rng = rand.New(rand.NewPCG(seed, uint64(i)))
			if n.all {
				together(t, n, w, all, seed, perCell/n.share, j, cells[i])
				return
			}
			for k, s := range all {
				if n.isFor(w, s) {
					j.judge(n, &cells[i][k], cell(t, n, w, s, seed, perCell/n.share))
				}
			}
		})
	}
	j.wait()
	text, sum := table(all, cells)
	t.Log("\n" + text)
	if 10*sum.undecided > sum.histories {
		t.Errorf("%d of %d histories could not be decided in time", sum.undecided, sum.histories)
	}
}

// table shows the figures of all cells, and returns their sum.
func table(all []subject, cells [][]counts) (string, counts) {
	var text strings.Builder
	var sum counts
	out := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	row := func(guard, nemesis string, c counts) {
		fmt.Fprintf(out, "%s\t%s\t%d\t%d\t%d\t%d\t%d\n", guard, nemesis, c.histories, c.calls, c.unknown,
			c.undecided, c.violations)
	}
	fmt.Fprintln(out, "guard\tnemesis\thistories\toperations\tunknown\tundecided\tviolations")
	for j, s := range all {
		for i, n := range nemeses {
			c := cells[i][j]
			if c.histories == 0 {
				continue
			}
			row(s.name, n.name, c)
			sum.histories += c.histories
			sum.calls += c.calls
			sum.unknown += c.unknown
			sum.undecided += c.undecided
			sum.violations += c.violations
		}
	}
	row("all", "all", sum)
	_ = out.Flush() // into memory
	return text.String(), sum
}

// cell makes histories of one guard under one nemesis until they have enough calls.
func cell(t *testing.T, n nemesis, w *world, s subject, seed uint64, calls int) (all []*history) {
	t.Helper()
	begun := time.Now()
	begin, call := s.open(t, w)
	ctx, end := context.WithCancel(t.Context())
	var acts atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer end()
		rng := rand.New(rand.NewPCG(seed, 1<<32))
		for made := 0; made < calls || int(acts.Load()) < n.acts; {
			h, err := s.run(w, nameOf(s, len(all)), rng.Uint64(), begin, call)
			if err != nil {
				continue
			}
			all = append(all, h)
			made += len(h.ops)
		}
	}()
	for n.act != nil && ctx.Err() == nil {
		n.act(ctx, t, w)
		acts.Add(1)
	}
	<-done
	t.Logf("%s: made in %v", s.name, time.Since(begun))
	return all
}

// judge checks histories while others are made: what breaks servers mostly waits for them.
type judge struct {
	t       *testing.T
	waiting chan struct{} // one for each cell whose histories wait, or are checked
	one     sync.Mutex    // held while a cell is checked, so that the callers of others have a processor
	work    sync.WaitGroup
}

func newJudge(t *testing.T) *judge { return &judge{t: t, waiting: make(chan struct{}, 16)} }

// wait waits until all histories are checked.
func (j *judge) wait() { j.work.Wait() }

// judge checks histories of one cell, and counts what it finds. It waits when there is much to check.
func (j *judge) judge(n nemesis, c *counts, all []*history) {
	j.waiting <- struct{}{}
	j.work.Go(func() {
		j.one.Lock()
		defer func() { j.one.Unlock(); <-j.waiting }()
		for _, h := range all {
			c.histories++
			c.calls += len(h.ops)
			c.unknown += int(h.failed.Load())
			switch h.verdict() {
			case porcupine.Ok:
			case porcupine.Illegal:
				c.violations++
				j.t.Errorf("%s, with %s: no order of these calls explains their answers\n%s", h.guard.name, n.name, h)
			case porcupine.Unknown:
				c.undecided++
			}
		}
	})
}
