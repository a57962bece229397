package saletest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// ManyBuyersAndFaults tests this: a thousand buyers in several processes confirm, cancel, leave and retry,
// while an operator restocks and some replies are lost. When the last hold has expired, every unit is
// accounted for.
func (k Kind) ManyBuyersAndFaults(t *testing.T, b redistest.Backend) {
	buyers, atOnce := 1000, 1000
	lost := 0.05 // of a few hundred calls, since many buyers share one and refusals are remembered
	switch {
	case b.Mini != nil:
		buyers = 500 // or on a busy machine they wait too long for a connection
	case guardtest.Soak():
		buyers, lost = 100_000, 0.01
	}
	if k.Buckets > 1 {
		atOnce = 400 // each of which may ask all buckets at once
	}
	const processes, restocks, hold = 8, 20, time.Hour
	stock := int64(buyers / 4)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)

	clock := guardtest.NewClock()
	faults := redistest.NewFaults(t)
	patient := func(o *redis.UniversalOptions) { // on a busy machine a thousand buyers wait for long
		o.PoolTimeout, o.ReadTimeout = time.Minute, time.Minute
		o.MaxRetries, o.MaxRedirects = 12, 12 // a call whose replies are all lost fails
	}
	guards := make([]Sales, processes)
	for i := range guards {
		e := core.New(b.NewClientWith(t, faults, patient), core.WithPrefix(b.Prefix),
			core.WithDeadline(time.Minute), core.WithObserver(guardtest.Ignore{}), guardtest.WithClock(clock))
		guards[i] = k.New(e, seckill.Options{})
		if err := e.Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	Open(t, guards[0], "tv", seckill.Sale{Stock: stock, Hold: hold})
	faults.SwallowEvery("evalsha", lost, rand.New(rand.NewPCG(seed, 0)))

	var sold, restocked atomic.Int64
	var all sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i := range buyers {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			clock.Advance(time.Microsecond) // or no process could tell what it has heard before units were given back
			rng := rand.New(rand.NewPCG(seed, uint64(i)+1))
			g := guards[i%processes]
			if every := buyers / restocks; i%every < 2 { // each is asked for twice
				if _, err := g.Restock(t.Context(), "tv", fmt.Sprint(i/every), 3); err != nil {
					t.Errorf("restock: %v", err)
				}
				restocked.Add(3)
			}
			a := core.Attempt{Actor: fmt.Sprint(i), Resource: "tv"}
			if rng.IntN(2) == 0 {
				a.ID = fmt.Sprint("order ", i)
			}
			d, err := g.Check(t.Context(), a)
			if err != nil || rng.IntN(10) == 0 { // not known, or the client asks again
				d, err = g.Check(t.Context(), d.Attempt)
			}
			switch {
			case err != nil:
				t.Logf("buyer %d: %v", i, err)
			case !d.Allowed:
			case rng.IntN(5) == 0: // walks away
			case rng.IntN(4) == 0:
				if _, err := g.Cancel(t.Context(), d.Attempt); err != nil {
					t.Errorf("cancel: %v", err)
				}
			default:
				confirmed, err := g.Confirm(t.Context(), d.Attempt)
				if err != nil || !confirmed.Allowed {
					t.Errorf("confirm: %+v, %v", confirmed, err)
				}
				sold.Add(1)
			}
		})
	}
	all.Wait()
	faults.Heal()
	if faults.Swallowed() == 0 {
		t.Error("no reply was lost")
	}

	g := guards[0]
	stock += restocked.Load() / 2
	s, err := g.Status(t.Context(), "tv")
	if err != nil || s.Stock != stock || s.Sold != sold.Load() || s.Held == 0 {
		t.Fatalf("%+v (%v), want a stock of %d, %d sold and some held", s, err, stock, sold.Load())
	}
	WantConsistent(t, g, "tv")
	clock.Advance(hold)
	for {
		n, err := g.Sweep(t.Context(), "tv")
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
	}
	WantStatus(t, g, "tv", stock-sold.Load(), 0, sold.Load())
	reader := NewReader()
	reader.Read(t, g, "tv")
	if reader.Stock != stock {
		t.Errorf("the outbox tells of a stock of %d, want %d", reader.Stock, stock)
	}
	t.Logf("%d buyers, %d of %d units sold, %d replies lost", buyers, sold.Load(), stock, faults.Swallowed())
}
