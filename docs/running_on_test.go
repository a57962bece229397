package docs_test

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestBytesAreThoseOfThePage: docs/running-on.md has a row for the server that the tests run on, with what
// records take on it: a full sliding window of 100 units, a token bucket, a vote, a reservation. The test
// prints the figures, for the row of a server that is new.
func TestBytesAreThoseOfThePage(t *testing.T) {
	rdb := redistest.StartServer(t).Client(t)
	server, jemalloc := versionOf(t, rdb)
	figures := []float64{
		bytesOfAWindow(t, rdb), bytesOfABucket(t, rdb), bytesOfAVote(t, rdb), bytesOfAReservation(t, rdb),
	}
	t.Logf("%s: %.1f bytes", server, figures)
	_, row, found := strings.Cut(read(t, "docs/running-on.md"), "| "+server+" |")
	if !found || !jemalloc {
		t.Logf("docs/running-on.md has no row for %s with jemalloc (%v)", server, jemalloc)
		return
	}
	row, _, _ = strings.Cut(row, "\n")
	columns := strings.Split(strings.Trim(row, " |"), "|")
	shown := columns[len(columns)-len(figures):]
	for i, text := range shown {
		var want float64
		if _, err := fmt.Sscan(text, &want); err != nil {
			t.Fatalf("the row of %s: %q: %v", server, text, err)
		}
		if math.Abs(want-figures[i]) > max(0.5, 0.02*want) { // tables grow at moments of their own
			t.Errorf("docs/running-on.md has %q for %s: want %.1f (of %.1f)", text, server, figures[i], figures)
		}
	}
}

// versionOf returns the server's name and version, and whether its allocator is jemalloc.
func versionOf(t *testing.T, rdb *redis.Client) (server string, jemalloc bool) {
	t.Helper()
	info := map[string]string{}
	for line := range strings.SplitSeq(rdb.Info(t.Context()).Val(), "\r\n") {
		name, value, _ := strings.Cut(line, ":")
		info[name] = value
	}
	jemalloc = strings.HasPrefix(info["mem_allocator"], "jemalloc")
	if version := info["valkey_version"]; version != "" {
		return "Valkey " + version, jemalloc
	}
	return "Redis " + info["redis_version"], jemalloc
}

// bytesOf returns the memory of all keys that match the pattern.
func bytesOf(t *testing.T, rdb *redis.Client, pattern string) float64 {
	t.Helper()
	sum := 0.0
	keys := rdb.Scan(t.Context(), 0, pattern, 1000).Iterator()
	for keys.Next(t.Context()) {
		sum += float64(rdb.MemoryUsage(t.Context(), keys.Val(), 0).Val())
	}
	if err := keys.Err(); err != nil || sum == 0 {
		t.Fatalf("%s takes %v bytes: %v", pattern, sum, err)
	}
	return sum
}

// pageEngine has the default prefix, as the keys of most applications.
func pageEngine(rdb *redis.Client, options ...core.Option) *core.Engine {
	return core.New(rdb, append(options, core.WithDeadline(10*time.Second))...)
}

func bytesOfAWindow(t *testing.T, rdb *redis.Client) float64 {
	t.Helper()
	clock := guardtest.NewClockAt(time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC))
	g := limit.NewSlidingWindow(pageEngine(rdb, guardtest.WithClock(clock)), "api", limit.PerHour(100))
	for range 100 {
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "203.0.113.7"}), core.ReasonOK)
		clock.Advance(time.Hour / 100)
	}
	return bytesOf(t, rdb, "gatehouse:window:*203.0.113.7*")
}

func bytesOfABucket(t *testing.T, rdb *redis.Client) float64 {
	t.Helper()
	g := limit.NewTokenBucket(pageEngine(rdb), "api", limit.PerHour(100))
	guardtest.Check(t, g, core.Attempt{Actor: "203.0.113.7"})
	return bytesOf(t, rdb, "gatehouse:bucket:*203.0.113.7*")
}

// claimants are how many have voted or reserved when their records are measured.
const claimants = 2000

func bytesOfAVote(t *testing.T, rdb *redis.Client) float64 {
	t.Helper()
	claim(t, votes.New(pageEngine(rdb), "poll", votes.Options{}))
	return bytesOf(t, rdb, "gatehouse:votes:*:voters") / claimants
}

func bytesOfAReservation(t *testing.T, rdb *redis.Client) float64 {
	t.Helper()
	g := seckill.New(pageEngine(rdb), "sale", seckill.Options{})
	if _, err := g.Open(t.Context(), "final", seckill.Sale{Stock: claimants}); err != nil {
		t.Fatal(err)
	}
	claim(t, g)
	return bytesOf(t, rdb, "gatehouse:seckill:*") / claimants
}

// claim has each claimant vote or reserve, some at a time.
func claim(t *testing.T, g core.Guard) {
	t.Helper()
	const atOnce = 16
	var all sync.WaitGroup
	for first := range atOnce {
		all.Go(func() {
			for i := first; i < claimants; i += atOnce {
				d, err := g.Check(t.Context(), core.Attempt{
					Actor: fmt.Sprintf("user-%07d", i), Resource: "final", Item: "red", ID: fmt.Sprintf("order-%06d", i),
				})
				if err != nil || !d.Allowed {
					t.Errorf("%s, claimant %d: %+v, %v", g.Name(), i, d, err)
					return
				}
			}
		})
	}
	all.Wait()
}
