package bench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
)

// scaleKeys are the actors of the traffic that is measured.
const scaleKeys = 10_000

// atScale is the group of what one process costs one master, by the calls that it has under way there: for
// three kinds of traffic, and for small pools.
func atScale(ctx context.Context, rdb *redis.Client) group {
	loads := []load{{1, false}, {4, false}, {8, false}, {16, false}, {32, false}, {128, false}}
	return group{part: "scale", name: "One process and one master", redis: rdb, loads: loads, subjects: func(
		int, time.Duration,
	) []subject {
		subjects := []subject{floorOn(ctx, rdb)}
		for _, pool := range []int{0, 8, 4} {
			client, name := rdb, fmt.Sprint("PoolSize ", rdb.Options().PoolSize)
			if pool > 0 {
				options := *rdb.Options()
				options.PoolSize = pool
				client, name = redis.NewClient(&options), fmt.Sprint("PoolSize ", pool)
			}
			gate := core.New(client, core.WithDeadline(30*time.Second), core.WithRefusalMemory(0),
				core.WithPrefix(fmt.Sprint("scale-", pool)))
			window := byGuard("", 0, limit.NewSlidingWindow(gate, "window", limit.PerMinute(momentMost)))
			for _, traffic := range traffics() {
				s := subject{name: traffic.name + ", " + name, allow: func(ctx context.Context, _ string) (bool, error) {
					return window.allow(ctx, traffic.key())
				}}
				if pool == 0 || traffic.name == "even" {
					subjects = append(subjects, s)
				}
			}
			sale := seckill.New(gate, "sale", seckill.Options{})
			must(sale.Open(ctx, "one", seckill.Sale{Stock: manyUnits, Hold: time.Hour}))
			subjects = append(subjects, claimed("one sale, "+name, sale),
				claimed("one poll, "+name, votes.New(gate, "vote", votes.Options{})))
		}
		return subjects
	}}
}

// traffic picks actors.
type traffic struct {
	name string
	key  func() string
}

// traffics are even, Zipf's with an exponent of 1.1, and one tenant with half of all. Others take the place
// of the busiest before their units are used up.
func traffics() []traffic {
	sums, sum := make([]float64, scaleKeys), 0.0
	for i := range sums {
		sum += math.Pow(float64(i+1), -1.1)
		sums[i] = sum
	}
	var calls atomic.Int64
	turn := func() string { return "-" + strconv.FormatInt(calls.Add(1)/momentMost, 10) }
	even := func() string { return strconv.Itoa(rand.IntN(scaleKeys)) }
	return []traffic{
		{"even", even},
		{"Zipf 1.1", func() string {
			i, _ := slices.BinarySearch(sums, rand.Float64()*sum)
			return "z" + strconv.Itoa(i) + turn()
		}},
		{"one tenant with half", func() string {
			if rand.IntN(2) == 0 {
				return "tenant" + turn()
			}
			return even()
		}},
	}
}
