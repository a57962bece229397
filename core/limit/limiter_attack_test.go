package limit

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestLimiterAttack runs the attack of TestAttacker under a fake clock. The most units admitted in any window
// is then exact: it is the worst case that the algorithm's documentation names.
func TestLimiterAttack(t *testing.T) {
	const n = 50
	worst := map[string]int{"SlidingWindow": n, byParts.name: n, "FixedWindow": 2*n - 1, "TokenBucket": 2*n - 1}
	for _, k := range append([]kind{byParts}, kinds...) {
		t.Run(k.name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				for _, primed := range []bool{false, true} {
					if most := mostAdmitted(t, b, k, n, primed); most != worst[k.name] {
						t.Errorf("primed=%v: %d admitted in a window, want %d", primed, most, worst[k.name])
					}
				}
			})
		})
	}
}

// mostAdmitted attacks a limit of n per hour, after its units were used once if primed. It returns the most
// units admitted in any hour. (Keys live as long as a window by the server's clock, so windows are long.)
func mostAdmitted(t *testing.T, b redistest.Backend, k kind, n int64, primed bool) int {
	t.Helper()
	const window = time.Hour
	clock := guardtest.NewClock()
	g := k.make(guardtest.NewEngine(b, guardtest.WithClock(clock)), fmt.Sprintf("attacked-%v", primed),
		Per(n, window))
	var admitted []time.Time
	try := func() bool {
		allowed := guardtest.Check(t, g, core.Attempt{Actor: "a"}).Allowed
		if allowed {
			admitted = append(admitted, clock.Now())
		}
		return allowed
	}
	burst := func() {
		for try() {
		}
	}
	if primed {
		burst()
		clock.Advance(window * 21 / 20)
	}
	try() // opens a fixed window
	clock.Advance(window * 9 / 10)
	for range 160 {
		burst()
		clock.Advance(window / 100)
	}
	most := 0
	for i := range admitted {
		j := i
		for j < len(admitted) && admitted[j].Sub(admitted[i]) < window {
			j++
		}
		most = max(most, j-i)
	}
	return most
}

// TestLimiterWithAClockSetBack: no actor gets a limit a second time, and none waits longer than a window plus
// the jump.
func TestLimiterWithAClockSetBack(t *testing.T) {
	for _, jump := range []time.Duration{time.Millisecond, 5 * time.Second, time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			eachKindEverywhere(t, func(t *testing.T, b redistest.Backend, k kind) {
				clock := guardtest.NewClock()
				const window = 10 * time.Minute
				g := k.make(guardtest.NewEngine(b, guardtest.WithClock(clock)), "w", Per(3, window))
				a := core.Attempt{Actor: "a"}
				guardtest.Check(t, g, a)
				guardtest.Check(t, g, a)
				if k.name == "TokenBucket" {
					guardtest.Check(t, g, a)
					clock.Advance(-jump)
				} else { // what was left before is left now
					clock.Advance(-jump)
					last := guardtest.Check(t, g, a)
					guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonLimited)
					refund(t, g, last)
					guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
				}
				for range 3 {
					d := guardtest.Check(t, g, a)
					guardtest.WantReason(t, d, core.ReasonLimited)
					if d.RetryAfter <= 0 || d.RetryAfter > window+jump {
						t.Fatalf("%+v: want a retry after a window and the jump at most", d)
					}
				}
				d := guardtest.Check(t, g, a)
				guardtest.WantReason(t, d, core.ReasonLimited)
				clock.Advance(d.RetryAfter)
				guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
			})
		})
	}
}

// articleScript is the limiter of many articles.
var articleScript = script.New("fixed_window_of_articles", `
local n = redis.call('INCR', KEYS[1])
if n == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return {n <= tonumber(ARGV[1]) and 1 or 0}`, script.AtMostOnce)

// TestAttacker attacks with knowledge of the limit's window and of the times of its own attempts by the
// server's clock. It bursts at the end of the window and keeps polling. A sliding window may admit at most N
// units in any window of that length, the other algorithms at most their worst case. The limiter from many
// articles admits about twice N, which shows that the test can fail.
func TestAttacker(t *testing.T) {
	const n = 50
	windows := []time.Duration{200 * time.Millisecond}
	if redistest.All() {
		windows = append(windows, time.Second, 2*time.Second)
	}
	for _, window := range windows {
		for _, primed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v primed=%v", window, primed), func(t *testing.T) {
				t.Parallel()
				b := redistest.Single(t)
				e := guardtest.NewEngine(b)
				// Where the machine is too slow for the burst, windows are longer.
				for try, window := 1, window; ; try, window = try+1, 2*window {
					var targets []target
					for _, k := range kinds {
						g := k.make(e, fmt.Sprintf("%s%d", k.name, try), Per(n, window))
						l := limiterOf(g)
						next := target{keys: l.keysOf(l.limits, core.Attempt{Actor: "a"}), args: l.limits.args}
						if l.algorithm.log {
							next.script, next.args = l.limits.log.short.check, l.limits.log.args[:1]
						} else {
							next.script = l.algorithm.decide.check
						}
						targets = append(targets, next)
					}
					targets = append(targets, target{
						script: articleScript, keys: []string{e.Key("articles", fmt.Sprint(try))},
						args: []any{n, window.Milliseconds()}})
					attack(t, b.Client.(*redis.Client), targets, n, window, primed)

					sliding, fixed, bucket, article := targets[0].most, targets[1].most, targets[2].most, targets[3].most
					t.Logf("most admitted in any %v, with a limit of %d: sliding window %d, fixed window %d, token "+
						"bucket %d, articles %d",
						window, n, sliding, fixed, bucket, article)
					if sliding > n || fixed > 2*n-1 || bucket > 2*n {
						t.Fatalf("want at most %d, %d and %d", n, 2*n-1, 2*n)
					}
					if article >= n*9/5 {
						return
					}
					if try == 9 { // the attacker was too slow for its burst even in windows 256 times as long
						t.Fatalf("the limiter of the articles admitted only %d: this test could not have failed", article)
					}
				}
			})
		}
	}
}

// target is a limiter under attack.
type target struct {
	script   *script.Script
	keys     []string
	args     []any
	admitted []admission
	most     int // in any window
}

// admission happened between two readings of the server's clock.
type admission struct{ after, before time.Time }

// attack attacks all targets at once.
func attack(t *testing.T, rdb *redis.Client, targets []target, n int, window time.Duration, primed bool) {
	t.Helper()
	ctx := t.Context()
	for _, target := range targets {
		rdb.ScriptLoad(ctx, target.script.Source())
	}
	attempt := func() (at time.Time, let bool) {
		pipe := rdb.TxPipeline()
		times := []*redis.TimeCmd{pipe.Time(ctx)}
		var runs []*redis.Cmd
		for _, target := range targets {
			runs = append(runs, pipe.EvalSha(ctx, target.script.SHA(), target.keys, target.args...))
			times = append(times, pipe.Time(ctx))
		}
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
		for i, run := range runs {
			text, _ := run.Val().(string) // of a limit that allows it
			if list, _ := run.Val().([]any); text != "" || len(list) == 1 && list[0] == int64(1) {
				targets[i].admitted = append(targets[i].admitted, admission{times[i].Val(), times[i+1].Val()})
				let = true
			}
		}
		return times[len(runs)].Val(), let
	}
	pause := time.NewTicker(time.Millisecond)
	defer pause.Stop()
	wait := func(until time.Time) {
		for rdb.Time(ctx).Val().Before(until) {
			<-pause.C
		}
	}

	if primed {
		begin, _ := attempt()
		for range n - 1 {
			attempt()
		}
		wait(begin.Add(window + window/20))
	}
	begin, _ := attempt() // opens a fixed window
	wait(begin.Add(window * 9 / 10))
	for {
		at, let := attempt()
		if at.After(begin.Add(window * 5 / 2)) {
			break
		}
		if !let {
			<-pause.C
		}
	}
	for i := range targets {
		admitted := targets[i].admitted
		for j := range admitted {
			k := j
			for k < len(admitted) && admitted[k].before.Sub(admitted[j].after) < window {
				k++
			}
			targets[i].most = max(targets[i].most, k-j)
		}
	}
}
