package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
)

// sharedCalls is the group of checks of the same moment: to a thousand keys, and to one. All are allowed,
// under every load. Their keys are not those of the callers.
func sharedCalls(ctx context.Context, rdb *redis.Client) group {
	return group{name: "Checks of the same moment", redis: rdb, subjects: func(int, time.Duration) []subject {
		subjects := []subject{floorOn(ctx, rdb)}
		for i, options := range [][]core.Option{{core.WithoutSharedCalls()}, nil} {
			gate := core.New(rdb, append(options, core.WithDeadline(30*time.Second), core.WithRefusalMemory(0),
				core.WithPrefix(fmt.Sprint("shared-", i)))...)
			way := []string{"each by itself", "shared"}[i]
			const most = 10_000
			g := limit.NewSlidingWindow(gate, "one", limit.Per(most, time.Minute))
			subjects = append(subjects,
				onKeys(g, "SlidingWindow, 1,000 keys, "+way, 1000, most),
				onKeys(g, "SlidingWindow, one key, "+way, 1, most))
		}
		return subjects
	}}
}

// onKeys takes units of n keys at random, and of others before they are used up.
func onKeys(g *limit.SlidingWindow, name string, n, most int) subject {
	var calls atomic.Int64
	return subject{name: name, allow: func(ctx context.Context, _ string) (bool, error) {
		turn := calls.Add(1) / int64(n*most/2)
		d, err := g.Check(ctx, core.Attempt{Actor: strconv.FormatInt(turn*int64(n)+rand.Int64N(int64(n)), 10),
			Resource: strconv.Itoa(n)})
		return d.Allowed, err
	}}
}
