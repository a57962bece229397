package buckets

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
	"github.com/gatehouse-go/gatehouse/internal/testkit/saletest"
)

// TestBucketsRace: many more buyers than units, in several processes. Nothing is given back, so sold_out was
// true if and only if nothing is left in the end.
func TestBucketsRace(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		buyers, stock := 2000, int64(200)
		if guardtest.Soak() {
			buyers, stock = 40_000, 1000
		}
		const processes, buckets, perBuyer, atOnce = 4, 8, 2, 400
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		guards := make([]*Guard, processes)
		var calls atomic.Int64
		for i := range guards {
			e := core.New(busy{b.NewClient(t), func(redis.Cmder) { calls.Add(1) }},
				core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute), core.WithObserver(guardtest.Ignore{}))
			guards[i] = newGuard(e)
		}
		openSale(t, guards[0], "tv", buckets, seckill.Sale{Stock: stock, PerBuyer: perBuyer})

		var sold, refused, attempts atomic.Int64
		var all sync.WaitGroup
		slots := make(chan struct{}, atOnce)
		for i := range buyers {
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				rng := rand.New(rand.NewPCG(seed, uint64(i)))
				got := int64(0)
				for try := range 3 { // one more than anybody may win
					a := core.Attempt{Actor: fmt.Sprint(i), Resource: "tv", Cost: 1 + rng.Int64N(2)}
					if rng.IntN(2) == 0 {
						a.ID = fmt.Sprint("order ", i, " ", try)
					}
					attempts.Add(1)
					d, err := guards[(i+try)%processes].Check(t.Context(), a)
					switch {
					case err != nil:
						t.Errorf("%+v: %v", a, err)
					case d.Allowed:
						got += a.Cost
						again := core.Attempt{Actor: a.Actor, Resource: "tv", Cost: a.Cost, ID: d.Attempt.ID}
						if d, err := guards[i%processes].Check(t.Context(), again); err != nil || !d.Allowed || !d.Replayed {
							t.Errorf("a winner who asks again: %+v, %v", d, err)
						}
						guardtest.Settle(t, guards[try], d, core.Commit)
					case d.Reason == core.ReasonSoldOut && a.Cost == 1:
						refused.Add(1)
					}
				}
				if got > perBuyer {
					t.Errorf("buyer %d has %d units", i, got)
				}
				sold.Add(got)
			})
		}
		all.Wait()
		if sold.Load() != stock || refused.Load() == 0 {
			t.Errorf("%d units sold, %d buyers refused", sold.Load(), refused.Load())
		}
		wantStatus(t, guards[0], "tv", 0, 0, stock)
		reader := saletest.NewReader()
		reader.Read(t, guards[1], "tv")
		if reader.Stock != stock {
			t.Errorf("the outbox tells of a stock of %d", reader.Stock)
		}
		t.Logf("%d attempts of %d buyers for %d units, %d calls to Redis", attempts.Load(), buyers, stock,
			calls.Load())
	})
}
