package seckill

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/redistest"
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
		e := core.New(p.primary.Client(t), core.WithDeadline(20*time.Second), core.WithObserver(guardtest.Ignore{}))
		return New(e, "s", Options{Durability: Acked, AckWithin: within})
	}
	p.patient, p.hasty = guard(19*time.Second), guard(50*time.Millisecond)
	return p
}

// TestAckedReplayWaitsForTheFirstWrite: a retry after an unconfirmed answer writes nothing new, and must not
// get a yes that no replica has.
func TestAckedReplayWaitsForTheFirstWrite(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	openSale(t, p.patient, "tv", Sale{Stock: 5})
	buy := core.Attempt{Actor: "ann", Resource: "tv", ID: "op"}
	p.replica.Pause()
	for range 3 {
		d := guardtest.Check(t, p.hasty, buy)
		guardtest.WantReason(t, d, core.ReasonUnconfirmed)
		if d.RetryAfter != time.Second || StateOf(d) != "" {
			t.Errorf("%+v", d)
		}
		if err := p.hasty.Settle(t.Context(), d, core.Commit); err != nil {
			t.Errorf("settling what is not allowed: %v", err)
		}
	}
	wantStatus(t, p.patient, "tv", 4, 1, 0)
	p.replica.Resume()
	d := guardtest.Check(t, p.patient, buy)
	guardtest.WantReason(t, d, core.ReasonOK)
	wantStatus(t, p.patient, "tv", 4, 1, 0)

	p.replica.Pause()
	for range 2 {
		if err := p.hasty.Settle(t.Context(), d, core.Commit); !errors.Is(err, core.ErrUnconfirmed) ||
			errors.Is(err, core.ErrGone) {
			t.Errorf("Settle: %v", err)
		}
		// sold, but on no replica
		guardtest.WantReason(t, guardtest.Check(t, p.hasty, buy), core.ReasonUnconfirmed)
	}
	p.replica.Resume()
	guardtest.Settle(t, p.patient, d, true)
	wantStatus(t, p.patient, "tv", 4, 0, 1)
}

// TestAckedLoanThatNoReplicaHasIsNotAccepted: when the primary is lost, the units of such a loan are back in
// the lending bucket. If another process had moved them to the other bucket meanwhile, they would be sold
// twice.
func TestAckedLoanThatNoReplicaHasIsNotAccepted(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	openSale(t, p.patient, "tv", Sale{Stock: 4, PerBuyer: 5, Buckets: 2})
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

// TestAckedSeckillAgainstModel: while all replicas are up, an Acked sale behaves like any other.
func TestAckedSeckillAgainstModel(t *testing.T) {
	seckillAgainstModel(t, redistest.Cluster(t), Options{Durability: Acked, AckWithin: 9 * time.Second})
}

// TestAckedBucketsRace: in a sale of several buckets, each with a replica, stock has to move to the last
// buyers. Every promise is on a replica, loans included.
func TestAckedBucketsRace(t *testing.T) {
	const buyers, stock, buckets, processes = 300, 40, 4, 2
	b := redistest.Cluster(t)
	guards := make([]*Guard, processes)
	for i := range guards {
		e := core.New(b.NewClient(t), core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute),
			core.WithObserver(guardtest.Ignore{}))
		guards[i] = New(e, "s", Options{Durability: Acked, AckWithin: 59 * time.Second})
	}
	openSale(t, guards[0], "tv", Sale{Stock: stock, Buckets: buckets})
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
		if e.Kind == EventLent {
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
	fast := New(guardtest.NewEngine(b), "s", Options{})
	g := New(guardtest.NewEngine(b), "s", Options{Durability: Acked, AckWithin: 20 * time.Millisecond})
	openSale(t, fast, "tv", Sale{Stock: 8, Buckets: 4})
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

// TestAckedWithoutReplicas: no replica can confirm anything, so no buyer wins, and a refusal does not wait.
func TestAckedWithoutReplicas(t *testing.T) {
	t.Parallel()
	for _, b := range []redistest.Backend{redistest.Mini(t), redistest.Single(t)} {
		t.Run(b.Name, func(t *testing.T) {
			fast := New(guardtest.NewEngine(b), "s", Options{})
			var h guardtest.Recorder
			e := guardtest.NewEngine(b, core.WithObserver(&h))
			g := New(e, "s", Options{Durability: Acked, AckWithin: 20 * time.Millisecond})
			if opened, err := g.Open(t.Context(), "tv", Sale{Stock: 2}); opened ||
				!errors.Is(err, core.ErrUnconfirmed) {
				t.Errorf("Open: %v, %v", opened, err)
			}
			wantStatus(t, fast, "tv", 2, 0, 0)

			// The guard made the ID: no retry can come, so the hold is cancelled.
			d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv"})
			guardtest.WantReason(t, d, core.ReasonUnconfirmed)
			redistest.Eventually(t, 10*time.Second, func() bool { return e.Pending() == 0 }, "the hold goes back")
			wantStatus(t, fast, "tv", 2, 0, 0)
			// a retry with it all the same gets a unit
			guardtest.WantReason(t, guardtest.Check(t, fast, d.Attempt), core.ReasonOK)
			wantStatus(t, fast, "tv", 1, 1, 0)

			// The ID came from outside: the hold stays for a retry, and the refused call has no share in it.
			bob := core.Attempt{Actor: "bob", Resource: "tv", ID: "op"}
			guardtest.WantReason(t, guardtest.Check(t, g, bob), core.ReasonUnconfirmed)
			guardtest.WantReason(t, guardtest.Check(t, g, bob), core.ReasonUnconfirmed)
			redistest.Eventually(t, 10*time.Second, func() bool { return e.Pending() == 0 }, "the calls have left")
			wantStatus(t, fast, "tv", 0, 2, 0)
			asked := time.Now()
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "cid", Resource: "tv"}),
				core.ReasonSoldOut)
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "tv", ID: "other"}),
				core.ReasonDuplicate)
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "cid", Resource: "tv", ID: "op"}),
				core.ReasonConflict)
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "cid", Resource: "pc"}),
				core.ReasonNotReady)
			t.Logf("four refusals took %v", time.Since(asked))
			again := guardtest.Check(t, fast, bob)
			guardtest.WantReason(t, again, core.ReasonOK)
			guardtest.Settle(t, fast, again, false)
			wantStatus(t, fast, "tv", 1, 1, 0)

			// Calls by name make their change, and report that no replica has confirmed it.
			again = guardtest.Check(t, fast, bob)
			for name, call := range map[string]func() error{
				"confirm": func() error { _, err := g.Confirm(t.Context(), "tv", "op"); return err },
				"settle":  func() error { return g.Settle(t.Context(), again, core.Commit) },
				"cancel":  func() error { _, err := g.Cancel(t.Context(), "tv", d.Attempt.ID); return err },
				"restock": func() error { _, err := g.Restock(t.Context(), "tv", "r", 3); return err },
				"close":   func() error { return g.Close(t.Context(), "tv") },
				"open":    func() error { _, err := g.Open(t.Context(), "tv", Sale{Stock: 2}); return err },
			} {
				for range 2 { // and calling again changes nothing
					if err := call(); !errors.Is(err, core.ErrUnconfirmed) {
						t.Errorf("%s: %v", name, err)
					}
				}
			}
			wantStatus(t, fast, "tv", 4, 0, 1)
			if d, err := g.Confirm(t.Context(), "tv", "unknown"); err != nil || d.Reason != core.ReasonGone {
				t.Errorf("a no waits for nobody: %+v, %v", d, err)
			}
			if err := g.Close(t.Context(), "unknown"); !errors.Is(err, ErrNoSale) {
				t.Errorf("a no waits for nobody: %v", err)
			}
			if last := h.Events[len(h.Events)-3]; !errors.Is(last.Err, core.ErrUnconfirmed) {
				t.Errorf("the observer heard %+v", last)
			}
		})
	}
}

// TestAckedSetUp: a client that cannot keep a connection is a mistake of set-up, and so are contradictory
// options.
func TestAckedSetUp(t *testing.T) {
	single := redistest.Single(t)
	ap, err := single.NewClient(t).AutoPipeline()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ap.Close() })
	engine := func() *core.Engine { return core.New(single.Client) }
	for text, mistake := range map[string]func(){
		"which *redis.AutoPipeliner cannot": func() { New(core.New(ap), "s", Options{Durability: Acked}) },
		"which guardtest.NoClient cannot do": func() {
			New(core.New(guardtest.NoClient{}), "s",
				Options{Durability: Acked})
		},
		"set Durability to Acked":         func() { New(engine(), "s", Options{Replicas: 1}) },
		"or leave Replicas and AckWithin": func() { New(engine(), "s", Options{AckWithin: time.Second}) },
		"a Durability of 2":               func() { New(engine(), "s", Options{Durability: 2}) },
		"a Replicas of -1": func() {
			New(engine(), "s",
				Options{Durability: Acked, Replicas: -1})
		},
		"less than the engine's deadline of 100ms": func() {
			New(engine(), "s", Options{Durability: Acked, AckWithin: 100 * time.Millisecond})
		},
		"an AckWithin of 1µs": func() {
			New(engine(), "s",
				Options{Durability: Acked, AckWithin: time.Microsecond})
		},
	} {
		t.Run(text, func(t *testing.T) { guardtest.WantPanic(t, text, mistake) })
	}
	if g := New(engine(), "s", Options{Durability: Acked}); g.options.Replicas != 1 ||
		g.options.AckWithin != 50*time.Millisecond {
		t.Errorf("%+v: want 1 replica, and half the deadline", g.options)
	}
}
