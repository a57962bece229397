package limit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestADeploymentCostsASearch: two releases in turn, with a log of 10,000 units or of as many parts, of which
// one has another window, one limit more or a resolution. Each check, refusal and Peek made the log
// anew: 6.8 ms of Redis. Now it takes some commands, and a log is made only once for each form.
func TestADeploymentCostsASearch(t *testing.T) {
	b := redistest.Single(t)
	const n = 10_000
	minute := Per(n, time.Minute)
	for name, next := range map[string][]Limit{
		"another window":  {Per(n, 2*time.Minute)},
		"one limit more":  {minute, Per(n, time.Hour)},
		"a resolution":    {minute.WithResolution(1000)},
		"one limit fewer": nil,
	} {
		t.Run(name, func(t *testing.T) {
			clock := guardtest.NewClock()
			e := guardtest.NewEngine(b, guardtest.WithClock(clock), core.WithRefusalMemory(0))
			former := []Limit{minute}
			if next == nil {
				former, next = append(former, Per(n, time.Hour)), former
			}
			limits := former
			g := NewSlidingWindowBy(e, "w",
				func(context.Context, core.Attempt) ([]Limit, error) { return limits, nil })
			a := core.Attempt{Actor: "a", Cost: 10}
			for range 990 {
				clock.Advance(6 * time.Millisecond)
				guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
			}
			a.Cost = 1
			inTurn := func(times int, ask func()) {
				for i := range times {
					if limits = former; i%2 == 1 {
						limits = next
					}
					clock.Advance(6 * time.Millisecond)
					ask()
				}
			}
			check := func() { guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK) }
			refuse := func() {
				d, err := g.Check(t.Context(), core.Attempt{Actor: "a", Cost: n / 2})
				if err != nil || d.Allowed {
					t.Fatalf("%+v, %v: want a refusal", d, err)
				}
			}
			inTurn(4, check) // the forms are made
			look := func() { peek(t, g, a) }
			for what, ask := range map[string]func(){"allowed": check, "refused": refuse, "peek": look} {
				before, took := commandsOf(t, b.Client)
				inTurn(40, ask)
				after, since := commandsOf(t, b.Client)
				t.Logf("%s: %d us for each call", what, (since-took)/40)
				wrote := []string{"del", "rename", "ltrim", "lpop"}
				if what != "allowed" {
					wrote = append(wrote, "rpush", "lset", "pexpire", "set")
				}
				for _, command := range wrote {
					if times := after[command] - before[command]; times > 0 {
						t.Errorf("%s: %d times %s in 40 calls", what, times, command)
					}
				}
				all := int64(0)
				for _, command := range slices.Sorted(maps.Keys(after)) {
					all += after[command] - before[command]
				}
				if all > 40*60 {
					t.Errorf("%s: %d commands in 40 calls: %v", what, all, after)
				}
			}
			b.Client.FlushAll(t.Context())
		})
	}
}

// commandsOf returns how often the server has run each command, and the microseconds of its scripts.
func commandsOf(t *testing.T, rdb redis.UniversalClient) (times map[string]int64, took int64) {
	t.Helper()
	times = map[string]int64{}
	for key, stats := range rdb.InfoMap(t.Context(), "commandstats").Val()["Commandstats"] {
		var calls, micros int64
		if _, err := fmt.Sscanf(stats, "calls=%d,usec=%d", &calls, &micros); err != nil {
			t.Fatalf("%s: %v", stats, err)
		}
		command := key[len("cmdstat_"):]
		times[command] = calls
		if command == "evalsha" || command == "eval" {
			took += micros
		}
	}
	return times, took
}
