// Package everyguard has one guard of each kind, for tests that hold for all of them. A new guard is added
// here.
package everyguard

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/budget"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/core/idempotency"
	"github.com/gatehouse-go/gatehouse/core/kit"
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
)

// Kinds returns a guard of each package, by the folder of the package in core. Their client never connects:
// they are for tests of what guards say of themselves.
func Kinds() map[string]core.Guard { return On(nowhere()) }

// On returns a guard of each package, as Kinds does, made on the engine.
func On(gate *core.Engine) map[string]core.Guard {
	return map[string]core.Guard{
		"bans": bans.New(gate, "bans", bans.Options{}),
		"budget": budget.New(gate, "budget", budget.Options{Levels: []string{"user"},
			Find: func([]string) ([]budget.Limit, error) { return []budget.Limit{{Max: 2, Window: time.Hour}}, nil }}),
		"idempotency":     idempotency.New(gate, "idempotency", idempotency.Options{}),
		"limit":           limit.NewSlidingWindow(gate, "limit", limit.PerHour(2)),
		"limit/lease":     lease.New(gate, "lease", limit.PerSecond(5000)),
		"lock":            lock.New(gate, "lock", lock.Options{}),
		"quota":           quota.New(gate, "quota", quota.Options{Items: 3, Period: period.Daily(time.UTC)}),
		"redpacket":       redpacket.New(gate, "redpacket", redpacket.Options{}),
		"seckill":         seckill.New(gate, "seckill", seckill.Options{}),
		"seckill/buckets": buckets.New(gate, "buckets", buckets.Options{Buckets: 2}),
		"semaphore":       semaphore.New(gate, "semaphore", semaphore.Options{Max: 2}),
		"votes":           votes.New(gate, "votes", votes.Options{}),
		"waitingroom": waitingroom.New(gate, "waitingroom", waitingroom.Options{Capacity: 2,
			Secrets: [][]byte{[]byte("a secret of sixteen bytes")}}),
	}
}

// Tools returns a tool of each package that has one, by the name of the package: see kit.Tool. Their client
// never connects.
func Tools() map[string]kit.Tool {
	return map[string]kit.Tool{"delay": delay.New(nowhere(), "delay", delay.Options{})}
}

func nowhere() *core.Engine { return core.New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})) }
