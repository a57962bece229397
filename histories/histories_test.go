package histories

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

func subjects() []subject {
	var all []subject
	all = append(all, limits()...)
	all = append(all, polls()...)
	all = append(all, sales()...)
	return append(all, ackedSale(), packets(), quotas(), operationsOnce(), banned())
}

// counts are the figures of one cell of the table.
type counts struct {
	histories, calls, unknown, undecided, violations int
}

// operations is how many calls the whole table has, about.
func operations() int {
	if redistest.Soak() {
		return 1_000_000
	}
	return 36_000
}

// TestEveryHistoryIsLinearizable lets many callers use each guard while each nemesis breaks things, in many
// short histories, and checks every history against the guard's model. It prints a table of guard and
// nemesis.
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
	t.Cleanup(func() {
		text, sum := table(all, cells)
		t.Log("\n" + text)
		if 10*sum.undecided > sum.histories {
			t.Errorf("%d of %d histories could not be decided in time", sum.undecided, sum.histories)
		}
	})
	for i, n := range nemeses {
		cells[i] = make([]counts, len(all))
		t.Run(n.name, func(t *testing.T) {
			w := n.start(t)
			w.breaks, w.loses = n.act != nil, n.loses
			w.rng = rand.New(rand.NewPCG(seed, uint64(i)))
			if n.all {
				cells[i] = together(t, n, w, all, seed, perCell/n.share)
				return
			}
			for j, s := range all {
				if !n.isFor(w, s) {
					continue
				}
				cells[i][j] = cell(t, n, w, s, seed, perCell/n.share)
			}
		})
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
func cell(t *testing.T, n nemesis, w *world, s subject, seed uint64, calls int) (c counts) {
	t.Helper()
	begun := time.Now()
	begin, call := s.open(t, w)
	ctx, end := context.WithCancel(t.Context())
	var acts atomic.Int64
	done := make(chan struct{})
	var all []*history
	go func() {
		defer close(done)
		defer end()
		rng := rand.New(rand.NewPCG(seed, 1<<32))
		for c.calls < calls || int(acts.Load()) < n.acts {
			h, err := s.run(w, nameOf(s, len(all)), rng.Uint64(), begin, call)
			if err != nil {
				continue
			}
			all = append(all, h)
			c.calls += len(h.ops)
		}
	}()
	for n.act != nil && ctx.Err() == nil {
		n.act(ctx, t, w)
		acts.Add(1)
	}
	<-done
	made := time.Now()
	defer func() { t.Logf("%s: made in %v, checked in %v", s.name, made.Sub(begun), time.Since(made)) }()
	c.judge(t, n, all)
	return c
}

// judge checks histories, and counts what it finds.
func (c *counts) judge(t *testing.T, n nemesis, all []*history) {
	t.Helper()
	var mu sync.Mutex
	var work sync.WaitGroup
	todo := make(chan *history)
	for range runtime.GOMAXPROCS(0) {
		work.Go(func() {
			for h := range todo {
				verdict := h.verdict()
				mu.Lock()
				c.histories++
				c.unknown += int(h.failed.Load())
				switch verdict {
				case porcupine.Ok:
				case porcupine.Illegal:
					c.violations++
					t.Errorf("%s, with %s: no order of these calls explains their answers\n%s", h.guard.name, n.name, h)
				case porcupine.Unknown:
					c.undecided++
				}
				mu.Unlock()
			}
		})
	}
	for _, h := range all {
		todo <- h
	}
	close(todo)
	work.Wait()
}
