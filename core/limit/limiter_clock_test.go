package limit

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// recorder is a client that records the arguments of each command and answers like a limit that allows. The
// name of a refund, which follows the stamp, is random.
type recorder struct{ commands [][]any }

// stampOfRecorder is the stamp of all attempts that a recorder allows.
const stampOfRecorder int64 = 1_700_000_000_000_000

func (r *recorder) Process(_ context.Context, cmd redis.Cmder) error {
	args := slices.Clone(cmd.Args())
	if i := slices.Index(args, any(stampOfRecorder)); i >= 0 {
		args[i+1] = "name"
	}
	r.commands = append(r.commands, args)
	c, ok := cmd.(interface{ SetVal(any) }) // *redis.Cmd, or a command that is sent only once
	if !ok {
		return errors.New("not a script")
	}
	c.SetVal(fmt.Sprint(9, stampOfRecorder, 1000))
	return nil
}

// TestTheProcessClockDoesNotMatter: processes whose clocks differ send the same commands, so Redis decides
// the same for all.
func TestTheProcessClockDoesNotMatter(t *testing.T) {
	for _, k := range kinds {
		limits := [][]Limit{{PerMinute(10)}, {PerMinute(10), PerHour(20)}}
		if k.name == "SlidingWindow" {
			limits = append(limits, []Limit{PerMinute(10).WithResolution(60)},
				[]Limit{PerMinute(10), PerHour(20).WithResolution(60)})
		}
		for _, limits := range limits {
			synctest.Test(t, func(t *testing.T) {
				told := func() [][]any {
					r := &recorder{}
					g := k.make(core.New(r), "w", limits[0], limits[1:]...)
					for _, cost := range []int64{1, 3} {
						a := core.Attempt{Actor: "a", Cost: cost, ID: "o"}
						refund(t, g, guardtest.Check(t, g, a))
						peek(t, g, a)
						if err := g.Reset(t.Context(), a); err != nil {
							t.Fatal(err)
						}
					}
					return r.commands
				}
				before := told()
				for _, ahead := range []time.Duration{5 * time.Second, 10 * 366 * 24 * time.Hour} {
					<-time.After(ahead) // the bubble's clock, which advances at once
					if after := told(); len(before) != 8 || !reflect.DeepEqual(after, before) {
						t.Errorf("%s %v: a process whose clock is %v ahead says\n%v, not\n%v", k.name, limits, ahead, after,
							before)
					}
				}
			})
		}
	}
}

// serverClock moves the clock of a miniredis.
type serverClock struct {
	*guardtest.Clock
	b redistest.Backend
}

func newServerClock(b redistest.Backend) *serverClock {
	c := &serverClock{Clock: guardtest.NewClock(), b: b}
	b.Mini.SetTime(c.Now())
	return c
}

// Advance moves the clock. A real server keeps the moment at which a key expires; miniredis keeps the time
// that it has left. So Advance prolongs that time when it sets the clock back.
func (c *serverClock) Advance(t *testing.T, d time.Duration) {
	t.Helper()
	if err := c.b.Client.Exists(t.Context(), c.b.Prefix).Err(); err != nil { // removes expired keys
		t.Fatal(err)
	}
	if d < 0 {
		for _, key := range c.b.Mini.Keys() {
			c.b.Mini.SetTTL(key, c.b.Mini.TTL(key)-d)
		}
	}
	c.Clock.Advance(d)
	c.b.Mini.SetTime(c.Now())
}

// TestServerClockSetBack sets the server's clock back again and again, between attempts and refunds, with
// windows and TTLs both by that clock. No window by a correct clock may admit more units than the limit;
// units given back do not count.
func TestServerClockSetBack(t *testing.T) {
	b := redistest.Mini(t)
	engine := guardtest.NewEngine(b, core.WithRefusalMemory(0)) // the refusal memory uses the process's clock
	clock := newServerClock(b)
	const window = 16 * time.Second
	steps := []time.Duration{
		0, time.Millisecond, window / 16, window / 4, window/4 + time.Second, window / 2, window - time.Millisecond,
		window,
		window * 5 / 4, window * 9 / 4, 4 * window, 10 * time.Hour,
		-time.Second, -time.Second, -window, -time.Minute, -time.Minute,
		-10 * time.Hour, -60 * time.Hour, -120 * time.Hour,
	}
	number := 0
	rapid.Check(t, func(rt *rapid.T) {
		number++
		limits := []Limit{Per(rapid.Int64Range(1, 5).Draw(rt, "max"), window)}
		limits[0].Resolution = rapid.SampledFrom([]int64{0, 2, 16}).Draw(rt, "resolution")
		if rapid.Bool().Draw(rt, "two limits") {
			resolution := rapid.SampledFrom([]int64{0, 3}).Draw(rt, "other resolution")
			limits = append(limits, Per(6, 2*window).WithResolution(resolution))
		}
		g := NewSlidingWindow(engine, fmt.Sprintf("w%d", number), limits[0], limits[1:]...)
		type unit struct {
			at time.Duration
			d  core.Decision
		}
		var right time.Duration // the time by a clock that is right
		var taken []unit
		for range rapid.IntRange(1, 60).Draw(rt, "attempts") {
			step := rapid.SampledFrom(steps).Draw(rt, "step")
			clock.Advance(t, step)
			right += max(step, 0)
			// What has left its window is not given back: at its moment by a clock that was set back there
			// may be others by now.
			if i := rapid.IntRange(0, 29).Draw(rt, "refund"); i < len(taken) && right-taken[i].at < window {
				refund(t, g, taken[i].d)
				taken = append(taken[:i], taken[i+1:]...)
				continue
			}
			d := guardtest.Check(t, g, core.Attempt{Actor: "a"})
			if !d.Allowed {
				continue
			}
			taken = append(taken, unit{right, d})
			for _, l := range limits {
				n := int64(0)
				for _, u := range taken {
					if right-u.at < l.Window {
						n++
					}
				}
				if n > l.Max {
					rt.Fatalf("%d units in %v, with a limit of %v", n, l.Window, l)
				}
			}
		}
	})
}
