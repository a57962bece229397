package limit

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

var update = flag.Bool("update", false, "rewrite the table of limits in docs/guards/limits.md")

// TestThePageKnowsTheLimits measures what each rate limit admits at worst and what it costs a real Redis, and
// compares the result with the table of docs/guards/limits.md. go test ./core/limit -run
// TestThePageKnowsTheLimits -update rewrites it.
//
// Promise: A fixed window admits at most 2N-1 in a window, a token bucket its burst and one refill. [The
// page's table](guards/limits.md) is measured.
func TestThePageKnowsTheLimits(t *testing.T) {
	s := redistest.StartServer(t)
	b := redistest.Backend{Name: "redis", Client: s.Client(t), Prefix: "gatehouse"}
	table := `| guard | most admitted / N: unprimed, primed | bytes a key: N = 100 | N = 1,000 | N = 10,000 | calls a check: first, allowed, refused |
|---|---|---|---|---|---|
`
	for _, row := range []struct {
		kind
		title               string
		strict              bool
		mostBytes, unitCost int64
	}{
		{kinds[0], "`SlidingWindow`", true, 300, 7},
		{byParts, "`SlidingWindow`, resolution 100", true, 2000, 0},
		{kinds[1], "`FixedWindow`", false, 160, 0},
		{kinds[2], "`TokenBucket`", false, 160, 0},
	} {
		const n = 100
		unprimed, primed := mostAdmitted(t, b, row.kind, n, false), mostAdmitted(t, b, row.kind, n, true)
		if row.strict && max(unprimed, primed) > n {
			t.Errorf("%s: %d and %d of %d were admitted in one window", row.title, unprimed, primed, n)
		}
		table += fmt.Sprintf("| %s | %.2f, %.2f ", row.title, float64(unprimed)/n, float64(primed)/n)
		for _, n := range []int64{100, 1000, 10_000} {
			bytes := bytesOfFull(t, b, row.kind, n)
			if most := row.mostBytes + row.unitCost*n; bytes > most {
				t.Errorf("%s: %d bytes with %d units, want %d at most", row.title, bytes, n, most)
			}
			table += fmt.Sprintf("| %s ", grouped(bytes))
		}
		first, allowed, refused := callsOf(t, b, row.kind)
		table += fmt.Sprintf("| %d, %d, %d |\n", first, allowed, refused)
	}
	if t.Failed() {
		return
	}

	info := b.Client.Info(t.Context(), "server", "memory").Val()
	if !strings.Contains(info, "redis_version:7.0.") || !strings.Contains(info, "mem_allocator:jemalloc") {
		t.Logf("another Redis than the one of the page's table, so the figures may differ:\n%s", table)
		return
	}
	guardtest.WantOnPage(t, "../../docs/guards/limits.md", "limits table", table, *update)
}

// bytesOfFull returns the memory of a key that holds as many units as it can, including its name: for the
// guard "api" and the actor 203.0.113.7, with units spread evenly over an hour.
func bytesOfFull(t *testing.T, b redistest.Backend, k kind, n int64) int64 {
	t.Helper()
	clock := guardtest.NewClockAt(time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC))
	g := k.make(guardtest.NewEngine(b, guardtest.WithClock(clock)), "api", PerHour(n))
	a := core.Attempt{Actor: "203.0.113.7", Cost: n / 100}
	for range 100 {
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
		clock.Advance(time.Hour / 100)
	}
	bytes := b.Client.MemoryUsage(t.Context(), g.logKeys(a)[0], 0).Val()
	if err := g.Reset(t.Context(), a); err != nil || bytes == 0 {
		t.Fatalf("%d bytes, %v", bytes, err)
	}
	return bytes
}

// callsOf returns how many commands a script calls for an actor's first attempt, for one more, and for one
// that is refused.
func callsOf(t *testing.T, b redistest.Backend, k kind) (first, allowed, refused int) {
	t.Helper()
	g := k.make(guardtest.NewEngine(b), "calls-"+strings.ReplaceAll(k.name, " ", "-"), Per(2, kit.MaxTTL))
	count := func(want core.Reason) (n int) {
		t.Helper()
		rdb := b.Client.(*redis.Client)
		if err := rdb.ConfigResetStat(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "203.0.113.7"}), want)
		for _, line := range strings.Split(rdb.Info(t.Context(), "commandstats").Val(), "\r\n") {
			var calls int
			name, rest, _ := strings.Cut(line, ":calls=")
			if _, err := fmt.Sscanf(rest, "%d,", &calls); err == nil && !strings.Contains(name, "eval") &&
				!strings.Contains(name, "config") {
				n += calls
			}
		}
		return n
	}
	return count(core.ReasonOK), count(core.ReasonOK), count(core.ReasonLimited)
}

// grouped writes a number with commas, as in 10,000.
func grouped(n int64) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}
