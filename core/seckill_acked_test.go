package core

import (
	"errors"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

// pair is a primary with a replica, and an Acked guard of two processes: one that has all the time to wait, one that has not.
type pair struct {
	primary, replica *redistest.Server
	patient, hasty   *Seckill
}

func newPair(t *testing.T) pair {
	t.Helper()
	// Nothing but what the tests write moves the replication on.
	p := pair{primary: redistest.StartServer(t, "--repl-ping-replica-period", "3600"), replica: redistest.StartServer(t)}
	p.replica.ReplicaOf(p.primary)
	guard := func(within time.Duration) *Seckill {
		e := New(p.primary.Client(t), WithDeadline(20*time.Second), WithObserver(ignore{}))
		return e.Seckill("s", SeckillOptions{Durability: Acked, AckWithin: within})
	}
	p.patient, p.hasty = guard(19*time.Second), guard(50*time.Millisecond)
	return p
}

// TestAckedReplayWaitsForTheFirstWrite: who asks again after an unconfirmed answer writes nothing new, and must not hear a yes that no
// replica knows of.
func TestAckedReplayWaitsForTheFirstWrite(t *testing.T) {
	p := newPair(t)
	openSale(t, p.patient, "tv", Sale{Stock: 5})
	buy := Attempt{Actor: "ann", Resource: "tv", ID: "op"}
	p.replica.Pause()
	for range 3 {
		d := check(t, p.hasty, buy)
		wantReason(t, d, ReasonUnconfirmed)
		if d.RetryAfter != time.Second || d.State != "" {
			t.Errorf("%+v", d)
		}
		if err := p.hasty.Settle(t.Context(), d, true); err != nil {
			t.Errorf("settling what is not allowed: %v", err)
		}
	}
	wantStatus(t, p.patient, "tv", 4, 1, 0)
	p.replica.Resume()
	d := check(t, p.patient, buy)
	wantReason(t, d, ReasonOK)
	wantStatus(t, p.patient, "tv", 4, 1, 0)

	p.replica.Pause()
	for range 2 {
		if err := p.hasty.Settle(t.Context(), d, true); !errors.Is(err, ErrUnconfirmed) || errors.Is(err, ErrGone) {
			t.Errorf("Settle: %v", err)
		}
		wantReason(t, check(t, p.hasty, buy), ReasonUnconfirmed) // sold by now, and no replica knows
	}
	p.replica.Resume()
	settle(t, p.patient, d, true)
	wantStatus(t, p.patient, "tv", 4, 0, 1)
}

// TestAckedSeckillAgainstModel: where all replicas are there, an Acked sale is a sale like any other.
func TestAckedSeckillAgainstModel(t *testing.T) {
	seckillAgainstModel(t, redistest.Cluster(t), SeckillOptions{Durability: Acked, AckWithin: 9 * time.Second})
}
