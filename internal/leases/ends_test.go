package leases

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

var errLost = errors.New("lost")

// newPools has pools whose renewals have a result.
func newPools(lost func(holders []*Holder) ([]*Holder, error)) *pools {
	return &pools{lease: DefaultLease, cause: errLost, byTag: map[string]*pool{},
		renew: func(_ context.Context, holders []*Holder) ([]*Holder, error) { return lost(holders) }}
}

// wantLostAfter wants the lease of a holder to be lost at the end of that time, and not before.
func wantLostAfter(t *testing.T, p *pools, want time.Duration) {
	t.Helper()
	h := NewHolder("p", core.Attempt{Actor: "ann", Cost: 1}.WithCall(), 1, DefaultLease)
	begun := time.Now()
	p.add(h, begun)
	<-h.lost.Done()
	if took := time.Since(begun); took != want || !errors.Is(context.Cause(h.lost), errLost) {
		t.Errorf("lost after %v, %v: want %v", took, context.Cause(h.lost), want)
	}
}

// TestALeaseEndsFirstInTheProcess: a script that ran 0.9 ms after a whole millisecond, and 0.1 ms after it
// was sent, gave a lease that others could take 0.8 ms before the process gave it up.
//
// Promise: A lost lease ends the request's context with `semaphore.ErrLost`, before others get the permit. A
// stopped process learns of it when it goes on.
func TestALeaseEndsFirstInTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := newPools(func([]*Holder) ([]*Holder, error) { return nil, errors.New("Redis is away") })
		wantLostAfter(t, away, DefaultLease-DefaultLease/1000-time.Millisecond)
	})
}

// TestALeaseThatARenewalFindsLostEndsAtOnce, and not when its time is over.
func TestALeaseThatARenewalFindsLostEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taken := newPools(func(holders []*Holder) ([]*Holder, error) { return holders, nil })
		wantLostAfter(t, taken, DefaultLease/3)
	})
}
