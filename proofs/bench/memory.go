package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
)

// bytes is what keys take in Redis.
type bytes struct {
	all     int64
	passing int64 // of keys that expire within an hour
}

// weigh measures how many bytes the keys take in Redis after n units were taken, of one key or, for claims,
// by n claimants. It returns zero for a subject without keys of its own.
func (g group) weigh(ctx context.Context, s subject, n int, name string) (bytes, error) {
	match := s.keys
	key := func(i int) string { return fmt.Sprintf("%s-%08d", name, i) } // 19 bytes, as many IDs have
	if !g.claims {
		match, key = "*"+name+"*", func(int) string { return name }
	}
	if s.max == 0 || match == "" {
		return bytes{}, nil
	}
	for i := range n {
		if err := s.call(ctx, key(i), true); err != nil {
			return bytes{}, err
		}
	}
	return count(ctx, g.redis, match)
}

// count adds up the bytes of the keys.
func count(ctx context.Context, rdb *redis.Client, match string) (b bytes, err error) {
	found := rdb.Scan(ctx, 0, match, 1000).Iterator()
	for found.Next(ctx) {
		used, err := rdb.MemoryUsage(ctx, found.Val(), 0).Result()
		if err != nil {
			return b, err
		}
		ttl, err := rdb.PTTL(ctx, found.Val()).Result()
		if err != nil {
			return b, err
		}
		b.all += used
		if ttl > 0 && ttl < time.Hour {
			b.passing += used
		}
	}
	return b, found.Err()
}

// usedUp is the group of limits whose keys are weighed. The units of ours are taken at n moments that are
// spread over the window, for which a sliding window needs the most.
func usedUp(rdb *redis.Client) group {
	return group{name: "Limits on Redis", redis: rdb, subjects: func(n int, window time.Duration) []subject {
		now := time.Now()
		gate := core.New(rdb, core.WithDeadline(30*time.Second), core.WithRefusalMemory(0),
			core.WithClock(func() time.Time { return now }))
		rate := limit.Per(int64(n), window)
		var subjects []subject
		for name, g := range map[string]core.Guard{
			"SlidingWindow":               limit.NewSlidingWindow(gate, "one", rate),
			"SlidingWindow, by 100 parts": limit.NewSlidingWindow(gate, "parts", rate.WithResolution(100)),
			"FixedWindow":                 limit.NewFixedWindow(gate, "fixed", rate),
			"TokenBucket":                 limit.NewTokenBucket(gate, "bucket", rate),
		} {
			s := byGuard(name, n, g)
			check := s.allow
			s.allow = func(ctx context.Context, key string) (bool, error) {
				now = now.Add(window / time.Duration(n+1))
				return check(ctx, key)
			}
			subjects = append(subjects, s)
		}
		slices.SortFunc(subjects, func(a, b subject) int { return strings.Compare(a.name, b.name) })
		peer, peerLimit := redis_rate.NewLimiter(rdb), redis_rate.Limit{Rate: n, Burst: n, Period: window}
		return append(subjects, subject{name: "redis_rate", max: n,
			allow: func(ctx context.Context, key string) (bool, error) {
				result, err := peer.Allow(ctx, key, peerLimit)
				return err == nil && result.Allowed > 0, err
			}},
			byUlule("ulule/limiter", n, window, must(ululeredis.NewStore(rdb))))
	}}
}

// weighLimits writes the bytes of a key of each limiter, by the limit.
func weighLimits(ctx context.Context, g group, c config, out *report) error {
	columns := []string{"bytes of a key whose units are used up"}
	var cells [][]string
	for _, n := range c.weighs {
		columns = append(columns, fmt.Sprintf("%d per hour", n))
		if err := g.redis.FlushAll(ctx).Err(); err != nil {
			return err
		}
		for i, s := range g.subjects(n, time.Hour) {
			b, err := g.weigh(ctx, s, n, fmt.Sprintf("weighed-%02d", i))
			if err != nil {
				return err
			}
			if len(cells) <= i {
				cells = append(cells, []string{s.name})
			}
			cells[i] = append(cells[i], fmt.Sprint(b.all))
		}
	}
	out.line("\n## %s", g.name)
	out.head(columns...)
	for _, row := range cells {
		out.row(row...)
	}
	return nil
}

// weighClaims writes the bytes of a claimant, and those of the operation ID of the claim.
func weighClaims(ctx context.Context, g group, c config, out *report) error {
	out.line("\n## %s", g.name)
	out.head("memory", fmt.Sprintf("bytes per claimant, of %d", c.crowd),
		"more bytes, kept for an hour at most for retries")
	for i, s := range g.subjects(0, time.Minute) {
		b, err := g.weigh(ctx, s, c.crowd, fmt.Sprintf("weighed-%02d", i))
		if err != nil {
			return err
		}
		out.row(s.name, each(b.all-b.passing, c.crowd), each(b.passing, c.crowd))
	}
	return nil
}
