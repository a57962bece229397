package seckill

import (
	"errors"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
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
		return New(e, "s", Options{Durability: Acked, AckWithin: within})
	}
	p.patient, p.hasty = guard(50*time.Second), guard(50*time.Millisecond)
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
	guardtest.Settle(t, p.patient, d, core.Commit)
	wantStatus(t, p.patient, "tv", 4, 0, 1)
}

// TestAckedWithoutReplicas: no replica can confirm anything, so no buyer wins, and a refusal does not wait.
//
// Promise: An unconfirmed answer is never a win.
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
			redistest.Eventually(t, time.Minute, func() bool { return e.Pending() == 0 }, "the hold goes back")
			wantStatus(t, fast, "tv", 2, 0, 0)
			// a retry with it all the same gets a unit
			guardtest.WantReason(t, guardtest.Check(t, fast, d.Attempt), core.ReasonOK)
			wantStatus(t, fast, "tv", 1, 1, 0)

			// The ID came from outside: the hold stays for a retry, and the refused call has no share in it.
			bob := core.Attempt{Actor: "bob", Resource: "tv", ID: "op"}
			guardtest.WantReason(t, guardtest.Check(t, g, bob), core.ReasonUnconfirmed)
			guardtest.WantReason(t, guardtest.Check(t, g, bob), core.ReasonUnconfirmed)
			redistest.Eventually(t, time.Minute, func() bool { return e.Pending() == 0 }, "the calls have left")
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
			guardtest.Settle(t, fast, again, core.Rollback)
			wantStatus(t, fast, "tv", 1, 1, 0)

			// Calls by name make their change, and report that no replica has confirmed it.
			again = guardtest.Check(t, fast, bob)
			for name, call := range map[string]func() error{
				"confirm": func() error { _, err := g.Confirm(t.Context(), bob); return err },
				"settle":  func() error { return g.Settle(t.Context(), again, core.Commit) },
				"cancel":  func() error { _, err := g.Cancel(t.Context(), d.Attempt); return err },
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
			unknown := core.Attempt{Actor: "bob", Resource: "tv", ID: "unknown"}
			if d, err := g.Confirm(t.Context(), unknown); err != nil || d.Reason != core.ReasonGone {
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
