package lease

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// wrongClock is a client of a server whose clock differs from the test's, by which processes go.
type wrongClock struct {
	script.Client
	by *atomic.Int64 // microseconds
}

// Process changes the argument now of the scripts: the text of a time in micro- or milliseconds since 1970.
// It changes it back, because a script that the server does not have is sent again with the same arguments.
func (c wrongClock) Process(ctx context.Context, cmd redis.Cmder) error {
	said := slices.Clone(cmd.Args())
	defer func() { copy(cmd.Args(), said) }()
	for i, arg := range said {
		text, _ := arg.(string)
		now, err := strconv.ParseInt(text, 10, 64)
		switch {
		case err != nil:
		case len(text) == 16:
			cmd.Args()[i] = strconv.FormatInt(now+c.by.Load(), 10)
		case len(text) == 13:
			cmd.Args()[i] = strconv.FormatInt(now+c.by.Load()/1000, 10)
		}
	}
	return c.Client.Process(ctx, cmd)
}

// TestLeasesWhenTheServersClockJumps: where it is set back, no window has more than Max, what was in hand
// then, and what was admitted before and is given back later. Where it is set forward, that holds for windows
// that begin later, and one that began before has twice Max at most, as without leases.
//
// Promise: After a clock was set back, a window with leases has at most N plus the units then in hand or
// given back later. After a clock was set forward, an earlier window may have 2N.
func TestLeasesWhenTheServersClockJumps(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		number := 0
		rapid.Check(t, func(rt *rapid.T) {
			number++
			name, by := fmt.Sprintf("jumps%d", number), new(atomic.Int64)
			f := newFleet(rt, func(of limit.Limit, clock *guardtest.Clock) *leasing {
				return newLeasingOver(b, wrongClock{b.Client, by}, name, of, guardtest.WithClock(clock))
			})
			f.steps(t, rt, f.of.Max)
			f.clock.Advance(time.Microsecond)
			at, inHand := f.clock.Now().UnixMicro(), f.inHand(time.Time{})
			jumps := []time.Duration{f.part() / 3, f.part(), 2 * f.part(), f.of.Window, 40 * time.Hour}
			jump, back := rapid.SampledFrom(jumps).Draw(rt, "jump"), rapid.Bool().Draw(rt, "back")
			if back {
				jump = -jump
			}
			by.Store(jump.Microseconds())
			f.refunds = func(one grant) {
				if one.at < at { // in hand again, perhaps
					inHand += one.d.Attempt.Cost
				}
			}
			for range rapid.IntRange(1, 30).Draw(rt, "steps after") {
				f.step(t, rt)
				all, since := int64(f.in.most(f.of.Window)), admitted{}
				for _, taken := range f.in {
					if taken >= at {
						since = append(since, taken)
					}
				}
				later := int64(since.most(f.of.Window))
				if later > f.of.Max+inHand || back && all > f.of.Max+inHand || all > 2*f.of.Max {
					rt.Fatalf("%v, %v, %d in hand: %d units in a window, %d in one that began later", f.of, jump, inHand,
						all, later)
				}
			}
			f.burst(t, rt, f.start(), 1) // units of the server's future count from the first call on
			f.end(t, rt)
		})
	})
}
