package limit

import (
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestRefundOfACheckThatAFailoverLost: the new primary does not know the check. Its refund gives nothing back
// where the units that count were all taken after it, or in a token bucket all before it. Else it gives back
// as many as the check took at most, once.
//
// Promise: The refund of a check that a failover lost gives back no more units than the check took. It gives
// back units of others only if Redis cannot tell them apart.
func TestRefundOfACheckThatAFailoverLost(t *testing.T) {
	takes := func(t *testing.T, g rateLimit, clock *guardtest.Clock, cost int64) core.Decision {
		t.Helper()
		clock.Advance(time.Millisecond)
		d := guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: cost})
		guardtest.WantReason(t, d, core.ReasonOK)
		return d
	}
	const lost = 3 // units of the check
	eachKindAndParts(t, func(t *testing.T, b redistest.Backend, k kind) {
		bound := map[string]int64{"FixedWindow": lost, "TokenBucket": lost, byParts.name: lost}[k.name]
		before := map[string]int64{"FixedWindow": lost, byParts.name: lost}[k.name]
		for i, c := range []struct {
			name         string
			first, later int64 // units that others take before the check, and after the failover
			given        int64
		}{
			{"all were taken after it", 0, 4, 0},
			{"all were taken before it", 4, 0, before},
			{"some before it, some after it", 1, 4, bound},
		} {
			clock := guardtest.NewClockAt(time.Unix(1_800_000_000, 1_000_000)) // all is taken in one part
			g := k.make(guardtest.NewEngine(b, guardtest.WithClock(clock), core.WithRefusalMemory(0)),
				fmt.Sprint("w", i), Per(20, time.Hour))
			if c.first > 0 {
				takes(t, g, clock, c.first)
			}
			failOver := whatIsReplicated(t, b, limiterOf(g).logKeys(core.Attempt{Actor: "a"})[0])
			check := takes(t, g, clock, lost)
			failOver()
			if c.later > 0 {
				takes(t, g, clock, c.later)
			}
			for range 2 {
				refund(t, g, check)
			}
			want := 20 - c.first - c.later + c.given
			if d := peek(t, g, core.Attempt{Actor: "a"}); d.Remaining != want {
				t.Errorf("%s: %d remaining, want %d", c.name, d.Remaining, want)
			}
		}
	})
}

// whatIsReplicated returns what brings a key back to what it is now.
func whatIsReplicated(t *testing.T, b redistest.Backend, key string) func() {
	t.Helper()
	text, err := b.Client.Get(t.Context(), key).Result()
	list := b.Client.LRange(t.Context(), key, 0, -1).Val() // empty where the key is no list
	return func() {
		p := b.Client.TxPipeline()
		p.Del(t.Context(), key)
		switch {
		case len(list) > 0:
			p.RPush(t.Context(), key, list)
			p.PExpire(t.Context(), key, time.Hour)
		case err == nil:
			p.Set(t.Context(), key, text, time.Hour)
		}
		if _, err := p.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
