package buckets

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// meanwhile is a client that lets something happen once, before it sends a script for the first time.
type meanwhile struct {
	script.Client
	script *script.Script
	mu     sync.Mutex
	happen func()
}

func (m *meanwhile) Process(ctx context.Context, cmd redis.Cmder) error {
	if args := cmd.Args(); len(args) > 1 && args[1] == m.script.SHA() {
		m.mu.Lock() // all buckets are asked at once, and all of them afterwards
		if happen := m.happen; happen != nil {
			m.happen = nil
			happen()
		}
		m.mu.Unlock()
	}
	return m.Client.Process(ctx, cmd)
}

// TestOneIDAtOnceHearsOneAnswer: in a sale of several buckets two calls of one operation were under way. One
// took the last units, which another bucket had, and the other said that there were none.
//
// Promise: Concurrent calls of one operation get one answer: no `sold_out` beside an `ok`.
func TestOneIDAtOnceHearsOneAnswer(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		other := newGuard(guardtest.NewEngine(b, guardtest.WithClock(clock)))
		rdb := &meanwhile{Client: b.Client, script: loansScript} // by which units are looked for
		g := newGuard(guardtest.NewEngineOver(b, rdb, guardtest.WithClock(clock)))
		sale := seckill.Sale{Stock: 1, PerBuyer: 1, Hold: time.Minute} // the unit is in bucket 0
		for i, kind := range []string{"check", "restock", "confirm"} {
			openSale(t, other, kind, 4, sale)
			at := spreadOf(t, other, kind, 4)
			buyer, id := buyerOf(at, 1, i), buyerOf(at, 2, i) // as an ID of a restock, it belongs to bucket 2
			a := core.Attempt{Actor: buyer, Resource: kind, ID: id}
			if _, err := g.Status(t.Context(), kind); err != nil { // knows the buckets from now on
				t.Fatal(err)
			}
			switch kind {
			case "check":
				rdb.happen = func() {
					guardtest.WantReason(t, guardtest.Check(t, other, a), core.ReasonOK)
				}
				d := guardtest.Check(t, g, a)
				if !d.Allowed || !d.Replayed {
					t.Errorf("%+v: want the reservation of the other call", d)
				}
				wantStatus(t, g, kind, 0, 1, 0)
				// Who has no ID, or another, still hears that all is sold.
				for _, id := range []string{"", "another"} {
					guardtest.WantReason(t, guardtest.Check(t, g,
						core.Attempt{Actor: buyerOf(at, 1, 9), Resource: kind, ID: id}), core.ReasonSoldOut)
				}
			case "restock":
				rdb.happen = func() {
					if _, err := other.Restock(t.Context(), kind, id, -1); err != nil {
						t.Error(err)
					}
				}
				if s, err := g.Restock(t.Context(), kind, id, -1); err != nil || s.Stock != 0 {
					t.Errorf("%+v, %v: want what the other call has done", s, err)
				}
				wantStatus(t, g, kind, 0, 0, 0)
			case "confirm":
				guardtest.Check(t, other, a)
				clock.Advance(time.Hour)
				if _, err := other.Sweep(t.Context(), kind); err != nil {
					t.Fatal(err)
				}
				if _, err := by(other, at).lend(t.Context(), 1, 3, 1); err != nil { // to be borrowed again
					t.Fatal(err)
				}
				rdb.happen = func() { endOf(t, other.Confirm, a) }
				if d, err := g.Confirm(t.Context(), a); err != nil || !d.Allowed {
					t.Errorf("%+v, %v: want the sale of the other call", d, err)
				}
				wantStatus(t, g, kind, 0, 0, 1)
			}
			if rdb.happen != nil {
				t.Fatal(fmt.Sprint(kind, ": nobody looked for units"))
			}
		}
	})
}
