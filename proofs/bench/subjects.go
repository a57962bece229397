package bench

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-chi/httprate"
	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	throttledredis "github.com/throttled/throttled/v2/store/goredisstore.v9"
	throttledmemory "github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
	"golang.org/x/time/rate"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/script"
)

// subject is what is measured.
type subject struct {
	name string
	max  int // units of a fresh key; 0: the subject is a floor, which allows everything
	// allow takes a unit of the key, and reports whether there was one. It is safe for concurrent use.
	allow func(ctx context.Context, key string) (bool, error)
	// keys matches all keys of a claim in Redis.
	keys string
}

// call takes a unit where the answer is known.
func (s subject) call(ctx context.Context, key string, want bool) error {
	allowed, err := s.allow(ctx, key)
	if err == nil && allowed != want {
		err = fmt.Errorf("allowed is %v", allowed)
	}
	if err != nil {
		return fmt.Errorf("%s, key %s: %w", s.name, key, err)
	}
	return nil
}

// group holds subjects that are compared with each other; the first is their floor.
type group struct {
	part  string // by which -only chooses it
	name  string
	redis *redis.Client // the Redis that decides; nil: inside the process
	loads []load
	// claims reports that a key stands for a claimant: it has one unit, which does not come back, and is
	// weighed in a crowd. Otherwise a key is a budget of units.
	claims bool
	// subjects makes fresh subjects, with limits of n units per window unless their comment says otherwise.
	subjects func(n int, window time.Duration) []subject
}

// onRedis is the group of limiters that decide on Redis, all over one client.
func onRedis(ctx context.Context, rdb *redis.Client) group {
	return group{part: "redis", name: "On Redis", redis: rdb, loads: allLoads, subjects: func(
		n int, window time.Duration,
	) []subject {
		oneScript := script.New("one", one, script.AtMostOnce)

		// The deadline is longer than any pause of a busy machine: an error would end the run.
		gate := core.New(rdb, core.WithDeadline(30*time.Second), core.WithRefusalMemory(0))
		remembers := core.New(rdb, core.WithDeadline(30*time.Second), core.WithPrefix("remembers"))
		most := int64(n)
		rate := limit.Per(most, window)

		peer := redis_rate.NewLimiter(rdb)
		peerLimit := redis_rate.Limit{Rate: n, Burst: n, Period: window}

		return []subject{
			floorOn(ctx, rdb),
			{name: "floor, by Engine.Run", allow: func(ctx context.Context, key string) (bool, error) {
				reply, err := gate.Run(ctx, oneScript, []string{gate.Key("floor", key)}, n, window.Milliseconds())
				return reply == int64(1), err
			}},
			// Redis decides each call of these, except for the second, which users get by default: it
			// remembers its refusals for a second.
			byGuard("SlidingWindow", n, limit.NewSlidingWindow(gate, "one", rate)),
			byGuard("SlidingWindow, remembering", n, limit.NewSlidingWindow(remembers, "one", rate)),
			byGuard("SlidingWindow, 3 limits", n, limit.NewSlidingWindow(gate, "three",
				rate, limit.Per(10*most, 60*window), limit.Per(100*most, 1440*window))),
			// At n = 100 per minute this is 100,000 per day, counted by minutes.
			byGuard("SlidingWindow, by parts", 1000*n,
				limit.NewSlidingWindow(gate, "parts", limit.Per(1000*most, 1440*window).WithResolution(1440))),
			byGuard("FixedWindow", n, limit.NewFixedWindow(gate, "fixed", rate)),
			byGuard("TokenBucket", n, limit.NewTokenBucket(gate, "bucket", rate)),
			{name: "redis_rate", max: n, allow: func(ctx context.Context, key string) (bool, error) {
				result, err := peer.Allow(ctx, key, peerLimit)
				return err == nil && result.Allowed > 0, err
			}},
			byUlule("ulule/limiter", n, window, must(ululeredis.NewStore(rdb))),
			byThrottled("throttled", n, window, must(throttledredis.NewCtx(rdb, "throttled:"))),
		}
	}}
}

// inProcess is the group of limiters that decide inside the process.
func inProcess() group {
	return group{part: "process", name: "Inside the process", loads: allLoads, subjects: func(
		n int, window time.Duration,
	) []subject {
		gate := core.NewMemory()
		rate := limit.Per(int64(n), window)
		return []subject{
			{name: "floor: a map under a mutex", allow: countInMap()},
			byGuard("SlidingWindow", n, limit.NewSlidingWindow(gate, "one", rate)),
			byGuard("FixedWindow", n, limit.NewFixedWindow(gate, "fixed", rate)),
			byGuard("TokenBucket", n, limit.NewTokenBucket(gate, "bucket", rate)),
			{name: "x/time/rate, one a key", max: n, allow: byRate(n, window)},
			{name: "sethvargo/go-limiter", max: n, allow: bySethvargo(n, window)},
			byUlule("ulule/limiter", n, window, ululememory.NewStore()),
			byThrottled("throttled", n, window, must(throttledmemory.NewCtx(1<<16))),
			{name: "httprate", max: n, allow: byHTTPRate(n, window)},
		}
	}}
}

const one = "return 1"

// floorOn is the least that a script can do.
func floorOn(ctx context.Context, rdb *redis.Client) subject {
	sha := must(rdb.ScriptLoad(ctx, one).Result())
	return subject{name: "floor: EVALSHA `return 1`",
		allow: func(ctx context.Context, key string) (bool, error) {
			return rdb.EvalSha(ctx, sha, []string{key}, 100, time.Minute.Milliseconds()).Bool()
		}}
}

func byGuard(name string, n int, g core.Guard) subject {
	return subject{name: name, max: n, allow: func(ctx context.Context, key string) (bool, error) {
		d, err := g.Check(ctx, core.Attempt{Actor: key})
		return d.Allowed, err
	}}
}

func byUlule(name string, n int, window time.Duration, store limiter.Store) subject {
	l := limiter.New(store, limiter.Rate{Limit: int64(n), Period: window})
	return subject{name: name, max: n, allow: func(ctx context.Context, key string) (bool, error) {
		state, err := l.Get(ctx, key)
		return !state.Reached, err
	}}
}

func byThrottled(name string, n int, window time.Duration, store throttled.GCRAStoreCtx) subject {
	l := must(throttled.NewGCRARateLimiterCtx(store,
		throttled.RateQuota{MaxRate: throttled.PerDuration(n, window), MaxBurst: n - 1}))
	return subject{name: name, max: n, allow: func(ctx context.Context, key string) (bool, error) {
		limited, _, err := l.RateLimitCtx(ctx, key, 1)
		return !limited, err
	}}
}

// countInMap is the least that a limiter with keys does: it counts, and never refuses.
func countInMap() func(context.Context, string) (bool, error) {
	var mu sync.Mutex
	counts := map[string]int{}
	return func(_ context.Context, key string) (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		counts[key]++
		return true, nil
	}
}

// byRate is what many programs make of a limiter without keys. It never forgets a key.
func byRate(n int, window time.Duration) func(context.Context, string) (bool, error) {
	var limiters sync.Map
	return func(_ context.Context, key string) (bool, error) {
		l, ok := limiters.Load(key)
		if !ok {
			l, _ = limiters.LoadOrStore(key, rate.NewLimiter(rate.Every(window/time.Duration(n)), n))
		}
		return l.(*rate.Limiter).Allow(), nil
	}
}

func bySethvargo(n int, window time.Duration) func(context.Context, string) (bool, error) {
	store := must(memorystore.New(&memorystore.Config{Tokens: uint64(n), Interval: window}))
	return func(ctx context.Context, key string) (bool, error) {
		_, _, _, ok, err := store.Take(ctx, key)
		return ok, err
	}
}

// byHTTPRate omits the response headers, which the others do not write either, so there is no response to
// write to.
func byHTTPRate(n int, window time.Duration) func(context.Context, string) (bool, error) {
	l := httprate.NewRateLimiter(n, window, httprate.WithResponseHeaders(httprate.ResponseHeaders{}))
	request := new(http.Request) // only its context is read
	return func(_ context.Context, key string) (bool, error) {
		return !l.OnLimit(nil, request, key), nil
	}
}

// must is for making the subjects, where an error is a mistake in this package or a dead server.
func must[T any](value T, err error) T {
	if err != nil {
		panic("bench: making the subjects: " + err.Error())
	}
	return value
}
