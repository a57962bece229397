package buckets

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// pair is a primary with a replica, and an Acked guard in two processes, one with a long and one with a short
// time to wait.
type pair struct {
	primary, replica *redistest.Server
	patient, hasty   *Guard
}

func newPair(t *testing.T) pair {
	t.Helper()
	p := pair{primary: redistest.StartServer(t), replica: redistest.StartServer(t)}
	p.replica.ReplicaOf(p.primary)
	guard := func(within time.Duration) *Guard {
		e := core.New(p.primary.Client(t), core.WithDeadline(time.Minute), core.WithObserver(guardtest.Ignore{}))
		return acked(e, within)
	}
	p.patient, p.hasty = guard(50*time.Second), guard(50*time.Millisecond)
	return p
}

func acked(e *core.Engine, within time.Duration) *Guard {
	options := seckill.Options{Durability: seckill.Acked, AckWithin: within}
	return New(e, "s", Options{Options: options, Buckets: 2})
}

// TestAckedLoanThatNoReplicaHasIsNotAccepted: when the primary is lost, the units of such a loan are back in
// the lending bucket. If another process had moved them to the other bucket meanwhile, they would be sold
// twice.
func TestAckedLoanThatNoReplicaHasIsNotAccepted(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	openSale(t, p.patient, "tv", 2, seckill.Sale{Stock: 4, PerBuyer: 5})
	at := spreadOf(t, p.patient, "tv", 2)
	p.replica.Pause()
	if _, err := by(p.hasty, at).lend(t.Context(), 0, 1, 1); !errors.Is(err, core.ErrUnconfirmed) {
		t.Fatalf("lend: %v", err)
	}
	for name, find := range map[string]func() error{
		"buyer": func() error {
			guardtest.WantReason(t, guardtest.Check(t, p.hasty,
				core.Attempt{Actor: buyerOf(at, 1, 0), Resource: "tv", ID: "op", Cost: 4}), core.ReasonUnconfirmed)
			return core.ErrUnconfirmed
		},
		"sweeper":              func() error { _, err := p.hasty.Sweep(t.Context(), "tv"); return err },
		"who takes stock away": func() error { _, err := p.hasty.Restock(t.Context(), "tv", "r", -4); return err },
	} {
		if err := find(); !errors.Is(err, core.ErrUnconfirmed) {
			t.Errorf("%s: %v", name, err)
		}
		state, _, err := by(p.patient, at).lookAll(t.Context())
		if err != nil || state[1].accepted[0] != 0 || state[1].Stock != 2 {
			t.Errorf("%s: bucket 1 has accepted it: %+v, %v", name, state[1], err)
		}
	}
	wantStatus(t, p.patient, "tv", 4, 0, 0)
	p.replica.Resume()
	guardtest.WantReason(t, guardtest.Check(t, p.patient,
		core.Attempt{Actor: buyerOf(at, 1, 0), Resource: "tv", ID: "op", Cost: 4}), core.ReasonOK)
	wantStatus(t, p.patient, "tv", 0, 4, 0)
}

// TestAckedBucketsRace: in a sale of several buckets, each with a replica, stock has to move to the last
// buyers. Every promise is on a replica, loans included.
func TestAckedBucketsRace(t *testing.T) {
	redistest.LeftToCI(t)
	const buyers, stock, buckets, processes = 300, 40, 4, 2
	b := redistest.Cluster(t)
	guards := make([]*Guard, processes)
	for i := range guards {
		e := core.New(b.NewClient(t), core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute),
			core.WithObserver(guardtest.Ignore{}))
		guards[i] = acked(e, 59*time.Second)
	}
	openSale(t, guards[0], "tv", buckets, seckill.Sale{Stock: stock})
	at := spreadOf(t, guards[0], "tv", buckets)

	var sold atomic.Int64
	var all sync.WaitGroup
	for i := range buyers {
		all.Go(func() {
			bucket := 0 // where most buyers are, so that the others lend
			if i%10 == 0 {
				bucket = 1
			}
			g := guards[i%processes]
			d, err := g.Check(t.Context(),
				core.Attempt{Actor: buyerOf(at, bucket, i), Resource: "tv", ID: fmt.Sprint("op ", i)})
			switch {
			case err != nil || !d.Allowed && d.Reason != core.ReasonSoldOut:
				t.Errorf("buyer %d: %+v, %v", i, d, err)
			case d.Allowed:
				if err := g.Settle(t.Context(), d, core.Commit); err != nil {
					t.Errorf("buyer %d: %v", i, err)
				}
				sold.Add(1)
			}
		})
	}
	all.Wait()
	if sold.Load() != stock {
		t.Errorf("%d units sold of %d", sold.Load(), stock)
	}
	wantStatus(t, guards[0], "tv", 0, 0, stock)
	r, err := guards[1].Verify(t.Context(), "tv")
	if err != nil || !r.Consistent() {
		t.Errorf("%v, %v", r, err)
	}
	loans := 0
	events, err := guards[0].Events(t.Context(), "tv", "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Kind == seckill.EventMoved {
			loans++
		}
	}
	if loans == 0 {
		t.Error("no bucket has lent anything")
	}
}

// TestAckedLoansWaitForReplicas: nobody may rely on a loan or an acceptance that no replica has.
func TestAckedLoansWaitForReplicas(t *testing.T) {
	t.Parallel()
	b := redistest.Single(t) // has no replica
	fast := newGuard(guardtest.NewEngine(b))
	g := acked(guardtest.NewEngine(b), 20*time.Millisecond)
	openSale(t, fast, "tv", 4, seckill.Sale{Stock: 8})
	at := spreadOf(t, fast, "tv", 4)
	if l, err := by(g, at).lend(t.Context(), 1, 0, 1); !errors.Is(err, core.ErrUnconfirmed) {
		t.Errorf("lend: %+v, %v", l, err)
	}
	l, err := by(fast, at).lend(t.Context(), 1, 0, 1) // is on its way already
	if err != nil || l.number != 1 || l.units != 1 {
		t.Fatalf("%+v, %v: want the first loan", l, err)
	}
	if err := by(g, at).accept(t.Context(), l); !errors.Is(err, core.ErrUnconfirmed) {
		t.Errorf("accept: %v", err)
	}
	// accepted before, but still on no replica
	if err := by(g, at).accept(t.Context(), l); !errors.Is(err, core.ErrUnconfirmed) {
		t.Errorf("accept again: %v", err)
	}
	if err := by(fast, at).complete(t.Context(), []loan{l}); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, fast, "tv", 8, 0, 0)
}
