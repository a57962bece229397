package leases

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

// TestARenewalThatFailsIsRepeated before the lease is over; if all fail, it is lost then, and not before.
func TestARenewalThatFailsIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failing atomic.Int64
		failing.Store(1)
		lost := errors.New("lost")
		p := pools{lease: DefaultLease, cause: lost, byTag: map[string]*pool{},
			renew: func(context.Context, []*Holder) ([]*Holder, error) {
				if failing.Add(-1) >= 0 {
					return nil, errors.New("Redis is away")
				}
				return nil, nil
			}}
		h := NewHolder("p", core.Attempt{Actor: "ann", Cost: 1}.WithCall(), 1, DefaultLease)
		p.add(h, time.Now())
		<-time.After(DefaultLease * 3 / 2)
		if h.lost.Err() != nil {
			t.Fatal("one renewal failed, and the lease was lost")
		}
		failing.Store(1 << 30)
		begun := time.Now()
		<-h.lost.Done()
		if took := time.Since(begun); took > DefaultLease || !errors.Is(context.Cause(h.lost), lost) {
			t.Errorf("after %v: %v", took, context.Cause(h.lost))
		}
	})
}
