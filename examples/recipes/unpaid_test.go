package recipes

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestUnpaidReservationsComeBack, each once, though a callback fails, and a relay dies before it has
// acknowledged what it did. Paid and cancelled ones do not.
func TestUnpaidReservationsComeBack(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		gate := guardtest.NewEngine(b, guardtest.WithClock(clock))
		sale := seckill.New(gate, "sale", seckill.Options{})
		queue := delay.New(gate, "unpaid", delay.Options{})
		unpaid := Unpaid{b.Client, sale, queue}
		if _, err := sale.Open(t.Context(), "ticket", seckill.Sale{Stock: 10, Hold: time.Minute}); err != nil {
			t.Fatal(err)
		}
		order := func(buyer string) core.Attempt {
			return core.Attempt{Actor: buyer, Resource: "ticket", ID: "order of " + buyer}
		}
		for _, buyer := range []string{"ann", "bob", "cid", "dan"} {
			guardtest.WantReason(t, guardtest.Check(t, sale, order(buyer)), core.ReasonOK)
		}
		if d, err := sale.Confirm(t.Context(), order("bob")); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		if _, err := sale.Cancel(t.Context(), order("cid")); err != nil {
			t.Fatal(err)
		}
		relay := func() {
			t.Helper()
			if err := unpaid.Relay(t.Context(), "ticket"); err != nil {
				t.Fatal(err)
			}
		}
		relay() // nothing has ended
		clock.Advance(2 * time.Minute)
		if n, err := sale.Sweep(t.Context(), "ticket"); err != nil || n != 2 {
			t.Fatalf("swept %d, %v", n, err)
		}
		relay()
		// As if the relay had died before it acknowledged: all is delivered again.
		if err := b.Client.XGroupDestroy(t.Context(), sale.OutboxKey("ticket"), "unpaid").Err(); err != nil {
			t.Fatal(err)
		}
		relay()
		if c, err := queue.Counts(t.Context()); err != nil || c.Pending != 2 {
			t.Fatalf("%+v, %v: want 2 callbacks", c, err)
		}

		var mu sync.Mutex
		calls := map[Expired]int{}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- unpaid.Work(ctx, func(_ context.Context, e Expired) error {
				mu.Lock()
				defer mu.Unlock()
				if calls[e]++; e.Buyer == "dan" && calls[e] == 1 {
					return errors.New("the mail cannot be sent now")
				}
				return nil
			}, delay.WorkOptions{Backoff: func(int) time.Duration { return 0 }, Poll: 20 * time.Millisecond})
		}()
		want := map[Expired]int{
			{Item: "ticket", ID: "order of ann", Buyer: "ann", Quantity: 1}: 1,
			{Item: "ticket", ID: "order of dan", Buyer: "dan", Quantity: 1}: 2,
		}
		redistest.Eventually(t, time.Minute, func() bool {
			c, err := queue.Counts(t.Context())
			return err == nil && c.Pending+c.Running == 0
		}, "all callbacks have run")
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if !maps.Equal(calls, want) {
			t.Errorf("called for %v, want %v", calls, want)
		}
		if s, err := sale.Status(t.Context(), "ticket"); err != nil || s.Left != 9 || s.Sold != 1 {
			t.Errorf("%+v, %v", s, err)
		}
	})
}
