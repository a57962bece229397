package docs_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/budget"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/core/idempotency"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/limit/lease"
	"github.com/gatehouse-go/gatehouse/core/lock"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/core/quota"
	"github.com/gatehouse-go/gatehouse/core/redpacket"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/seckill/buckets"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/core/votes/parts"
	"github.com/gatehouse-go/gatehouse/core/waitingroom"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/lua"
	"github.com/gatehouse-go/gatehouse/ops/control"
)

// TestMain runs the tests in the root of the module, from which the documents name files.
func TestMain(m *testing.M) {
	if err := os.Chdir(".."); err != nil {
		panic(err)
	}
	redistest.Main(m)
}

// TestEveryKeyIsInThePage: docs/redis-keys.md names every key that the guards make, with its type, and no
// other.
//
// Promise (Every guard): Every key expires, begins with the prefix, and is in [redis-keys.md](redis-keys.md).
func TestEveryKeyIsInThePage(t *testing.T) {
	page := keysOfThePage(t)
	b := redistest.Single(t)
	rdb, lose := b.NewClient(t), &lossy{}
	rdb.AddHook(lose)
	runEveryGuard(t, core.New(rdb, core.WithPrefix(b.Prefix), core.WithDeadline(5*time.Second)), lose)

	found := make(map[string]string)
	scan := func() {
		keys := b.Client.Scan(t.Context(), 0, b.Prefix+":*", 1000).Iterator()
		for keys.Next(t.Context()) {
			key := keys.Val()
			kind, ttl := b.Client.Type(t.Context(), key).Val(), b.Client.PTTL(t.Context(), key).Val()
			switch {
			case kind == "none" || ttl == -2: // a turn lasts for milliseconds: it is gone
			case ttl == -1:
				t.Errorf("%s has no TTL", key)
			default:
				found[key] = kind
			}
		}
		if err := keys.Err(); err != nil {
			t.Fatal(err)
		}
	}
	missing := func() (names []string) {
		for name, p := range page {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(found)), p.key.MatchString) {
				names = append(names, name)
			}
		}
		return names
	}
	scan()
	if len(missing()) > 0 { // what a failed call leaves is undone in the background
		redistest.Eventually(t, 10*time.Second, func() bool { scan(); return len(missing()) == 0 },
			fmt.Sprintf("no guard makes %q, which docs/redis-keys.md names", missing()))
	}
	for key, kind := range found {
		names := slices.DeleteFunc(slices.Collect(maps.Keys(page)), func(name string) bool {
			return !page[name].key.MatchString(key)
		})
		if len(names) != 1 || page[names[0]].kind != kind {
			t.Errorf("%s (%s) is %q in docs/redis-keys.md: want one row, of its type", key, kind, names)
		}
	}
}

// passBy lets small costs pass by a large one that waits, until the test ends: that takes the turn.
func passBy(t *testing.T, g *limit.SlidingWindow) {
	ctx, end := context.WithCancel(t.Context())
	var all sync.WaitGroup
	t.Cleanup(func() {
		end()
		all.Wait()
	})
	for _, wait := range []func() error{
		func() error { _, err := g.Wait(ctx, core.Attempt{Actor: "account", Cost: 4}); return err },
		func() error { _, err := g.Check(ctx, core.Attempt{Actor: "account"}); return err },
	} {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := wait(); err != nil && ctx.Err() == nil && !errors.Is(err, errLost) {
					t.Error(err)
				}
				<-time.After(time.Millisecond)
			}
		})
	}
}

// pageKey is a row of docs/redis-keys.md.
type pageKey struct {
	key  *regexp.Regexp
	kind string
}

// keysOfThePage reads the rows | `prefix:…` | type | of docs/redis-keys.md. A word in capitals stands for one
// field, of digits where it is a number, and what is in square brackets may be absent.
func keysOfThePage(t *testing.T) map[string]pageKey {
	t.Helper()
	page := make(map[string]pageKey)
	numbers := regexp.MustCompile(`\b(WINDOW|PARTS|STAMP|BEGINS|EPOCH|PART|BUCKET|MORE)\b`)
	row := regexp.MustCompile("(?m)^\\| `(prefix:[^`]+)` \\| ([a-z]+) \\|")
	for _, m := range row.FindAllStringSubmatch(read(t, "docs/redis-keys.md"), -1) {
		name := strings.ReplaceAll(m[1], `\|`, "|") // a table escapes it
		pattern := strings.NewReplacer(`\[`, "(?:", `\]`, ")?").Replace(regexp.QuoteMeta(name))
		pattern = strings.Replace(pattern, "prefix", "[^:]+", 1)
		pattern = numbers.ReplaceAllString(pattern, "[0-9]+")
		pattern = regexp.MustCompile(`\b[A-Z]{2,}\b`).ReplaceAllString(pattern, "[^|{}:]+")
		page[name] = pageKey{regexp.MustCompile("^" + pattern + "$"), m[2]}
	}
	if len(page) < 20 {
		t.Fatalf("docs/redis-keys.md has only %d keys", len(page))
	}
	return page
}

// lossy is a hook of a client. While it is armed, it loses each command before the command is sent.
type lossy struct{ armed atomic.Bool }

// errLost is the error of all calls while a lossy is armed.
var errLost = errors.New("lost by the test")

func (h *lossy) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *lossy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *lossy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.armed.Load() {
			cmd.SetErr(errLost)
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

// runEveryGuard makes every kind of key, each guard in its own way.
func runEveryGuard(t *testing.T, gate *core.Engine, lose *lossy) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check := func(g core.Guard, a core.Attempt) core.Decision {
		t.Helper()
		d, err := g.Check(ctx, a)
		if err != nil || !d.Allowed {
			t.Fatalf("%s: %+v, %v", g.Name(), d, err)
		}
		return d
	}
	ann := core.Attempt{Actor: "Ann ü", Resource: "login", ID: "o1"}

	hour, day := limit.PerHour(100), limit.PerDay(1000)
	for _, g := range []interface {
		core.Guard
		Refund(ctx context.Context, d core.Decision) error
	}{
		limit.NewSlidingWindow(gate, "site", hour),
		limit.NewSlidingWindow(gate, "tiers", hour, day.WithResolution(1440)),
		lease.New(gate, "leases", limit.PerHour(1000)),
		limit.NewFixedWindow(gate, "mails", hour), limit.NewTokenBucket(gate, "calls", hour),
	} {
		check(g, core.Attempt{Actor: "192.0.2.1"})
		check(g, ann)
		must(g.Refund(ctx, check(g, ann)))
	}

	passBy(t, limit.NewSlidingWindow(gate, "partner", limit.Per(4, time.Second)))

	bans := bans.New(gate, "abuse", bans.Options{})
	must(bans.Ban(ctx, core.Attempt{Actor: "192.0.2.1"}, time.Hour))
	_, err := bans.Strike(ctx, core.Attempt{Actor: "192.0.2.2"})
	must(err)

	quota := quota.New(gate, "articles", quota.Options{Items: 50, Period: period.Every(24 * time.Hour)})
	check(quota, core.Attempt{Actor: "ann", Item: "a7", ID: "o1"})
	lose.armed.Store(true)
	if _, err := quota.Check(ctx, core.Attempt{Actor: "ann", Item: "a8"}); err == nil {
		t.Fatal("the lost call is no error")
	}
	lose.armed.Store(false)

	once := idempotency.New(gate, "pay", idempotency.Options{})
	must(once.Settle(ctx, check(once, ann), core.Commit))

	exports := semaphore.New(gate, "exports", semaphore.Options{Max: 2, Wait: time.Minute})
	check(exports, core.Attempt{Actor: "Ann ü", Resource: "pdf", Cost: 2})
	var waits sync.WaitGroup
	t.Cleanup(waits.Wait)
	waits.Go(func() { // until the test ends
		d, err := exports.Check(ctx, core.Attempt{Actor: "bob", Resource: "pdf"})
		if err == nil && d.Allowed {
			t.Errorf("%+v: want one who waits", d)
		}
	})
	redistest.Eventually(t, 10*time.Second, func() bool {
		state, err := exports.Peek(ctx, core.Attempt{Resource: "pdf"})
		return err == nil && state.Waiting == 1
	}, "nobody waits")
	lose.armed.Store(true)
	if _, err := exports.Check(ctx, core.Attempt{Actor: "ann", Resource: "pdf"}); err == nil {
		t.Fatal("the lost call is no error")
	}
	lose.armed.Store(false)

	api := budget.New(gate, "tenants", budget.Options{Levels: []string{"org", "user"},
		Find: func([]string) ([]budget.Limit, error) {
			return []budget.Limit{{Max: 9, Window: time.Hour}, {Max: 9, Period: period.Daily(time.UTC)}}, nil
		}})
	check(api, core.Attempt{Actor: budget.Path("acme", "ann")})

	desk := control.New(ctx, gate, "desk")
	desk.Budget(api)
	paused := control.Decision{Kind: control.Pause, Name: "tenants", Of: "acme", Value: "on"}
	must(desk.Decide(ctx, paused, "sue", ""))
	entry := control.Decision{Kind: control.List, Name: "blocked", Of: "Ann ü", Value: "in"}
	must(desk.Decide(ctx, entry, "sue", ""))

	room := waitingroom.New(gate, "shop", waitingroom.Options{Capacity: 2,
		Secrets: [][]byte{[]byte("a secret of sixteen bytes")}})
	leaver := check(room, core.Attempt{Actor: "ann"})
	must(room.Leave(ctx, leaver))
	check(room, core.Attempt{Actor: "bob"})
	many := []any{"", 2, 600_000, 120_000, 30_000, 25_000, 86_400_000, 0, 0, "0 0   open   s", 1, 1}
	join := script.New("join", lua.Source("waitingroom/join"), script.AtMostOnce)
	_, err = gate.RunWithin(ctx, time.Second, join, keysOfRoom(room), many...) // one is called, one waits
	must(err)

	account := lock.New(gate, "account", lock.Options{Wait: time.Minute})
	check(account, core.Attempt{Actor: "Ann ü", Resource: "a7"})
	waits.Go(func() { // until the test ends
		d, err := account.Check(ctx, core.Attempt{Actor: "bob", Resource: "a7"})
		if err == nil && d.Allowed {
			t.Errorf("%+v: want one who waits", d)
		}
	})
	redistest.Eventually(t, 10*time.Second, func() bool {
		state, err := account.Peek(ctx, "a7")
		return err == nil && state.Waiting == 1
	}, "nobody waits")
	lose.armed.Store(true)
	if _, err := account.Check(ctx, core.Attempt{Actor: "ann", Resource: "a7"}); err == nil {
		t.Fatal("the lost call is no error")
	}
	lose.armed.Store(false)

	ballots := parts.New(gate, "poll", 2, votes.Options{Audit: true, Poll: votes.Poll{PerVoter: 3}})
	for i := range 16 { // both parts have one
		check(ballots, core.Attempt{
			Actor: fmt.Sprint("voter", i), Resource: "final", Item: "red", ID: fmt.Sprint("o", i), Origin: "192.0.2.1",
		})
	}
	voided := 0
	onlyOne := func(votes.Event) bool { voided++; return voided == 1 }
	_, err = ballots.Void(ctx, "final", votes.VoidOptions{Match: onlyOne})
	must(err)

	for _, sales := range []interface {
		core.Guard
		Open(ctx context.Context, item string, sale seckill.Sale) (bool, error)
	}{
		seckill.New(gate, "sale", seckill.Options{}), buckets.New(gate, "spread", buckets.Options{Buckets: 2}),
	} {
		_, err := sales.Open(ctx, "tv", seckill.Sale{Stock: 100})
		must(err)
		for i := range 16 { // both buckets have one
			check(sales, core.Attempt{Actor: fmt.Sprint("buyer", i), Resource: "tv", ID: fmt.Sprint("o", i)})
		}
	}

	packets := redpacket.New(gate, "gift", redpacket.Options{})
	_, err = packets.Create(ctx, "p1",
		redpacket.Packet{Total: 100, Shares: 5, Expires: time.Now().Add(time.Hour)})
	must(err)
	check(packets, core.Attempt{Actor: "ann", Resource: "p1", ID: "o1"})

	tasks := delay.New(gate, "tasks", delay.Options{MaxTries: 1})
	for i := range 5 {
		_, err := tasks.Schedule(ctx, fmt.Sprint("mail ", i), time.Time{}, []byte("payload"))
		must(err)
	}
	must(tasks.Cancel(ctx, "mail 4"))
	claimed, err := tasks.Claim(ctx, 3, 0)
	must(err)
	must(tasks.Ack(ctx, claimed[0], []byte("result")))
	must(tasks.Nack(ctx, claimed[1], "no paper", 0))

	own := script.New("own", "return redis.call('SET', KEYS[1], '1', 'PX', '60000')", script.Idempotent)
	_, err = gate.Run(ctx, own, []string{gate.Key("seen", "ann", "page 1")})
	must(err)
}

// keysOfRoom returns the keys of a waiting room in the order of its scripts.
func keysOfRoom(g *waitingroom.Guard) (keys []string) {
	for _, field := range []string{"room", "here", "seen", "taken", "inside", "passes", "called", "left"} {
		keys = append(keys, g.Key("room", field))
	}
	return keys
}
