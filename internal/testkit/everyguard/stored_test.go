package everyguard

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/budget"
	"github.com/gatehouse-go/gatehouse/core/idempotency"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/limit/lease"
	"github.com/gatehouse-go/gatehouse/core/lock"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/core/quota"
	"github.com/gatehouse-go/gatehouse/core/redpacket"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/seckill/buckets"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/core/waitingroom"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

var update = flag.Bool("update", false, "write the table of what one user can make a Redis keep")

// keeps is what one user can make a guard keep in Redis.
type keeps struct {
	kind     string // as in Kinds
	what     string // the guard of the row
	requests int    // after so many no more is kept
	most     int64  // bytes, rounded up: half of it is kept at least
	until    string
	bound    string

	// use makes the guard, and returns what request n of the user does.
	use func(gate *core.Engine) user
}

// user makes request n of a user.
type user func(ctx context.Context, n int) error

// tries makes the n-th attempt of a guard, and settles it if it is allowed.
func tries(g core.Guard, end core.Ending, a func(n int) core.Attempt) user {
	return func(ctx context.Context, n int) error {
		d, err := g.Check(ctx, a(n))
		if err == nil && d.Allowed && end != core.Commit {
			err = g.Settle(ctx, d, end)
		} else if err == nil && d.Allowed && g.Traits().Outage == core.FailClosed {
			err = g.Settle(ctx, d, end)
		}
		return err
	}
}

func id(n int) string { return fmt.Sprintf("%032d", n) }

var userKeeps = []keeps{
	{"limit", "sliding window, 100 a minute", 150, 1_000, "2.25 windows", "`Max`",
		func(gate *core.Engine) user {
			g := limit.NewSlidingWindow(gate, "g", limit.PerMinute(100))
			return tries(g, core.Commit, func(int) core.Attempt { return core.Attempt{Actor: "ann"} })
		}},
	{"limit/lease", "leased, 5,000 a second", 200, 1_000, "2.25 windows", "parts of a window",
		func(gate *core.Engine) user {
			g := lease.New(gate, "g", limit.PerSecond(5000))
			return tries(g, core.Commit, func(int) core.Attempt { return core.Attempt{Actor: "ann"} })
		}},
	{"budget", "budget, 1,000 a day", 1200, 4_000, "the period", "names of calls, for two minutes",
		func(gate *core.Engine) user {
			g := budget.New(gate, "g", budget.Options{Levels: []string{"user"},
				Find: func([]string) ([]budget.Limit, error) {
					return []budget.Limit{{Max: 1000, Period: period.Daily(time.UTC)}}, nil
				}})
			return tries(g, core.Rollback, func(n int) core.Attempt { return core.Attempt{Actor: "ann", ID: id(n)} })
		}},
	{"quota", "quota, 100 items a day", 150, 30_000, "the period", "`Items`; long ones are kept as a hash",
		func(gate *core.Engine) user {
			g := quota.New(gate, "g", quota.Options{Items: 100, Period: period.Daily(time.UTC)})
			return tries(g, core.Commit, func(n int) core.Attempt {
				return core.Attempt{Actor: "ann", Item: strings.Repeat("x", 2000) + id(n), ID: id(n)}
			})
		}},
	{"bans", "bans", 300, 1_000, "the ban and `Decay`", "1,000 strikes",
		func(gate *core.Engine) user {
			g := bans.New(gate, "g", bans.Options{})
			return func(ctx context.Context, _ int) error {
				_, err := g.Strike(ctx, core.Attempt{Actor: "ann"})
				return err
			}
		}},
	{"votes", "a poll with `Change`, `Audit` and no `Choices`", 150, 700_000, "`Keep`: 30 days",
		"`PerVoter` and 100 votes in all",
		func(gate *core.Engine) user {
			g := votes.New(gate, "g", votes.Options{Audit: true, Poll: votes.Poll{Change: true}})
			return tries(g, core.Commit, func(n int) core.Attempt {
				return core.Attempt{Actor: "ann", Resource: "p", Item: strings.Repeat("x", 990) + id(n), ID: id(n)}
			})
		}},
	{"votes", "a poll with `Audit`, requests that fail", 150, 40_000, "`Keep`: 30 days", "the same",
		func(gate *core.Engine) user {
			g := votes.New(gate, "g", votes.Options{Audit: true})
			return tries(g, core.Rollback, func(n int) core.Attempt {
				return core.Attempt{Actor: "ann", Resource: "p", Item: "red", ID: id(n)}
			})
		}},
	{"seckill", "a sale, reservations that are cancelled", 600, 30_000, "`Keep`: 30 days",
		"the last 16, or `PerBuyer`",
		func(gate *core.Engine) user {
			return cancels(seckill.New(gate, "g", seckill.Options{}))
		}},
	{"seckill", "a sale, requests whose time ends while they are confirmed", 600, 30_000, "the same", "the same",
		func(gate *core.Engine) user { return revokes(seckill.New(gate, "g", seckill.Options{})) }},
	{"seckill/buckets", "the same, of several buckets", 600, 40_000, "the same", "the same",
		func(gate *core.Engine) user {
			return cancels(buckets.New(gate, "g", buckets.Options{Buckets: 2}))
		}},
	{"redpacket", "a packet", 20, 1_000, "`Keep`", "one share",
		func(gate *core.Engine) user {
			g := redpacket.New(gate, "g", redpacket.Options{})
			packet := redpacket.Packet{Total: 1000, Shares: 100, Expires: time.Now().Add(time.Hour)}
			return func(ctx context.Context, n int) error {
				_, err := g.Create(ctx, "p", packet)
				if err == nil {
					_, err = g.Check(ctx, core.Attempt{Actor: "ann", Resource: "p", ID: id(n)})
				}
				return err
			}
		}},
	{"idempotency", "operations with answers of 60 kB", 9_500, 4_500_000, "`Keep`: 24 h",
		"`MaxActor`: 4 MiB; of all actors `MaxStored`: 1 GiB",
		func(gate *core.Engine) user {
			answer := []byte(strings.Repeat("x", 60_000))
			h := nethttpmw.HTTP(pipeline.Rule{Guard: idempotency.New(gate, "g", idempotency.Options{}),
				Who: keyfuncs.Const("ann"), ID: keyfuncs.IdempotencyKey()})(http.HandlerFunc(
				func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(answer) }))
			return func(ctx context.Context, n int) error {
				r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil)
				r.Header.Set("Idempotency-Key", strconv.Quote(id(n)))
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code != http.StatusOK && w.Code != http.StatusTooManyRequests {
					return fmt.Errorf("status %d: %s", w.Code, w.Body)
				}
				return nil
			}
		}},
	{"lock", "a lock", 20, 1_000, "the lease", "one",
		func(gate *core.Engine) user {
			g := lock.New(gate, "g", lock.Options{})
			return tries(g, core.Rollback, func(int) core.Attempt { return core.Attempt{Actor: "ann", Resource: "r"} })
		}},
	{"semaphore", "a semaphore of 10", 20, 1_000, "an hour at most", "`Max` permits",
		func(gate *core.Engine) user {
			g := semaphore.New(gate, "g", semaphore.Options{Max: 10})
			return func(ctx context.Context, _ int) error {
				_, err := g.Check(ctx, core.Attempt{Actor: "ann", Resource: "r"})
				return err
			}
		}},
	{"waitingroom", "a waiting room, visitors without tickets", 3000, 150_000, "`Keep`", "one room for all",
		func(gate *core.Engine) user {
			g := waitingroom.New(gate, "g", waitingroom.Options{Capacity: 2,
				Secrets: [][]byte{[]byte("a secret of sixteen bytes")}})
			return func(ctx context.Context, n int) error {
				_, err := g.Check(ctx, core.Attempt{Actor: id(n)})
				return err
			}
		}},
}

// cancels reserves under ever new IDs, and cancels.
func cancels(g interface {
	core.Guard
	Open(ctx context.Context, item string, sale seckill.Sale) (bool, error)
	Cancel(ctx context.Context, a core.Attempt) (core.Decision, error)
},
) user {
	return func(ctx context.Context, n int) error {
		a := core.Attempt{Actor: "ann", Resource: "tv", ID: id(n)}
		_, err := g.Open(ctx, "tv", seckill.Sale{Stock: 10})
		if err == nil {
			_, err = g.Check(ctx, a)
		}
		if err == nil {
			_, err = g.Cancel(ctx, a)
		}
		return err
	}
}

// revokes buys under ever new IDs, and takes it back as a request does that has ended meanwhile.
func revokes(g *seckill.Guard) user {
	return func(ctx context.Context, n int) error {
		_, err := g.Open(ctx, "tv", seckill.Sale{Stock: 10})
		if err != nil {
			return err
		}
		d, err := g.Check(ctx, core.Attempt{Actor: "ann", Resource: "tv", ID: id(n)})
		if err == nil {
			err = g.Settle(ctx, d, core.Commit)
		}
		if err == nil {
			err = g.Settle(ctx, d, core.Revoke)
		}
		return err
	}
}

// TestWhatOneUserCanMakeYouKeep: for each guard there is a number of requests after which one user's further
// ones leave nothing more. The pages have what is left then.
func TestWhatOneUserCanMakeYouKeep(t *testing.T) {
	redistest.LeftToCI(t)
	server := redistest.StartServer(t)
	rdb := server.Client(t)
	ctx := t.Context()
	known := map[string]bool{}
	table := "| one user of | keeps at most | until | bound by |\n|---|---:|---|---|\n"
	for _, k := range userKeeps {
		known[k.kind] = true
		if err := rdb.FlushAll(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		gate := core.New(rdb, core.WithDeadline(10*time.Second), core.WithObserver(guardtest.Ignore{}),
			core.WithRefusalMemory(0), core.WithLogger(slog.New(slog.DiscardHandler)))
		use := k.use(gate)
		stored := func(from, to int) (bytes int64) {
			for n := from; n < to; n++ {
				if err := use(ctx, n); err != nil && !errors.Is(err, core.ErrNotNow) {
					t.Fatalf("%s, request %d: %v", k.what, n, err)
				}
			}
			if err := gate.Drain(ctx); err != nil {
				t.Fatal(err)
			}
			keys, err := rdb.Keys(ctx, "*").Result()
			if err != nil {
				t.Fatal(err)
			}
			for _, key := range keys {
				bytes += rdb.MemoryUsage(ctx, key, 0).Val() // 0: it has ended
			}
			return bytes
		}
		full, further := stored(0, k.requests), min(k.requests, 2000)
		more := stored(k.requests, k.requests+further)
		t.Logf("%s: %d bytes after %d requests, %d after %d more", k.what, full, k.requests, more, further)
		if max(full, more) > k.most || full < k.most/3 && k.most > 1000 || more > full+full/3+500 {
			t.Errorf("%s: want %d bytes at most, a third of it at least, and no more after further requests",
				k.what, k.most)
		}
		table += fmt.Sprintf("| %s | %s | %s | %s |\n", k.what, size(k.most), k.until, k.bound)
	}
	for kind := range Kinds() {
		if !known[kind] {
			t.Errorf("%s has no row: say what one user can make it keep", kind)
		}
	}
	guardtest.WantOnPage(t, "../../../docs/operations/capacity.md", "one user", table, *update)
}

// size says bytes.
func size(bytes int64) string {
	if bytes >= 1e6 {
		return fmt.Sprintf("%.1f MB", float64(bytes)/1e6)
	}
	return fmt.Sprintf("%d kB", bytes/1000)
}
