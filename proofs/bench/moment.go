package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/limit/lease"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
)

// momentKeys are the numbers of keys to which the checks of one moment go.
var momentKeys = []int{1, 1000}

// momentMost is the limit of these keys.
const momentMost = 10_000

// ofOneMoment is the group of checks of the same moment: to one key, to a thousand, of buyers of one item,
// and of voters in one poll. All are allowed.
func ofOneMoment(ctx context.Context, rdb *redis.Client) group {
	return group{part: "moment", name: "Checks of the same moment", redis: rdb, loads: allowedLoads,
		subjects: func(
			int, time.Duration,
		) []subject {
			engine := func(prefix string, options ...core.Option) *core.Engine {
				return core.New(rdb, append(options, core.WithDeadline(30*time.Second), core.WithRefusalMemory(0),
					core.WithPrefix(prefix))...)
			}
			alone, shares := engine("alone", core.WithoutSharedCalls()), engine("shares")
			rate := limit.PerMinute(momentMost)
			peer, peerLimit := redis_rate.NewLimiter(rdb), redis_rate.PerMinute(momentMost)
			ulule := limiter.New(must(ululeredis.NewStore(rdb)), limiter.Rate{Limit: momentMost, Period: time.Minute})
			byRedisRate := func(ctx context.Context, key string) (bool, error) {
				result, err := peer.Allow(ctx, key, peerLimit)
				return err == nil && result.Allowed > 0, err
			}
			byUlule := func(ctx context.Context, key string) (bool, error) {
				state, err := ulule.Get(ctx, key)
				return !state.Reached, err
			}

			subjects := []subject{floorOn(ctx, rdb)}
			for _, n := range momentKeys {
				lent := lease.New(shares, fmt.Sprint("lent-", n), rate)
				for _, s := range []subject{
					byGuard("SlidingWindow, each by itself", 0,
						limit.NewSlidingWindow(alone, fmt.Sprint("window-", n), rate)),
					byGuard("SlidingWindow, shared", 0, limit.NewSlidingWindow(shares, fmt.Sprint("window-", n), rate)),
					byGuard("SlidingWindow by parts, each by itself", 0,
						limit.NewSlidingWindow(alone, fmt.Sprint("parts-", n), rate.WithResolution(60))),
					byGuard("SlidingWindow by parts, shared", 0,
						limit.NewSlidingWindow(shares, fmt.Sprint("parts-", n), rate.WithResolution(60))),
					inProcesses("SlidingWindow, shared by 4", 4, engine, func(e *core.Engine) core.Guard {
						return limit.NewSlidingWindow(e, fmt.Sprint("window-", n), rate)
					}),
					inProcesses("SlidingWindow, shared by 16", 16, engine, func(e *core.Engine) core.Guard {
						return limit.NewSlidingWindow(e, fmt.Sprint("window-", n), rate)
					}),
					byGuard("SlidingWindow, leased", 0, lent),
					inProcesses("SlidingWindow, leased by 4", 4, engine, func(e *core.Engine) core.Guard {
						return lease.New(e, fmt.Sprint("lent-", n), rate)
					}),
					byGuard("FixedWindow, shared", 0, limit.NewFixedWindow(shares, fmt.Sprint("fixed-", n), rate)),
					byGuard("TokenBucket, shared", 0, limit.NewTokenBucket(shares, fmt.Sprint("bucket-", n), rate)),
					{name: "redis_rate", allow: byRedisRate},
					{name: "ulule/limiter", allow: byUlule},
				} {
					s.name = map[int]string{1: "hot key: ", 1000: "1,000 keys: "}[n] + s.name
					s.allow = onKeys(s.allow, n)
					subjects = append(subjects, s)
				}
			}
			for _, way := range []struct {
				name   string
				engine *core.Engine
			}{{"each by itself", alone}, {"shared", shares}} {
				sale := seckill.New(way.engine, "sale", seckill.Options{})
				must(sale.Open(ctx, "one", seckill.Sale{Stock: manyUnits, Hold: time.Hour}))
				subjects = append(subjects, claimed("one item: Seckill, "+way.name, sale),
					claimed("one poll: Votes, "+way.name, votes.New(way.engine, "vote", votes.Options{})))
			}
			return subjects
		}}
}

// inProcesses divides the callers among engines that know nothing of each other, as processes would.
func inProcesses(
	name string, processes int, engine func(string, ...core.Option) *core.Engine,
	guard func(*core.Engine) core.Guard,
) subject {
	var guards []subject
	for range processes {
		guards = append(guards, byGuard("", 0, guard(engine(fmt.Sprint("by-", processes)))))
	}
	var calls atomic.Int64
	return subject{name: name, allow: func(ctx context.Context, key string) (bool, error) {
		return guards[calls.Add(1)%int64(processes)].allow(ctx, key)
	}}
}

// claimed makes claims of different actors.
func claimed(name string, g core.Guard) subject {
	var actors atomic.Int64
	return subject{name: name, allow: func(ctx context.Context, _ string) (bool, error) {
		d, err := g.Check(ctx, core.Attempt{Actor: strconv.FormatInt(actors.Add(1), 10), Resource: "one"})
		return d.Allowed, err
	}}
}

// onKeys takes units of n keys at random, and of others before they are used up.
func onKeys(
	allow func(context.Context, string) (bool, error), n int,
) func(context.Context, string) (bool, error) {
	var calls atomic.Int64
	return func(ctx context.Context, _ string) (bool, error) {
		turn := calls.Add(1) / int64(n*momentMost/2)
		return allow(ctx, strconv.Itoa(n)+"-"+strconv.FormatInt(turn*int64(n)+rand.Int64N(int64(n)), 10))
	}
}
