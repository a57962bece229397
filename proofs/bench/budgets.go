package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/budget"
	"github.com/gatehouse-go/gatehouse/core/period"
)

// budgets is the group of budgets with one level and with three, each of which has n units per window, or a
// window and a month.
func budgets(rdb *redis.Client) group {
	return group{part: "budgets", name: "Budgets", redis: rdb, subjects: func(n int, w time.Duration) []subject {
		window := []budget.Limit{{Max: int64(n), Window: w}}
		both := []budget.Limit{window[0], {Max: int64(n), Period: period.Monthly(time.UTC)}}
		var all []subject
		for i, limits := range [][]budget.Limit{window, both} {
			for _, levels := range []int{1, 3} {
				gate := core.New(rdb, core.WithDeadline(30*time.Second))
				g := budget.New(gate, fmt.Sprintf("b%d-%d", i, levels), budget.Options{
					Levels: []string{"org", "team", "user"}[:levels],
					Find:   func([]string) ([]budget.Limit, error) { return limits, nil },
				})
				all = append(all, subject{name: fmt.Sprintf("budget, %d levels, %d limits each", levels, len(limits)),
					max: n, allow: func(ctx context.Context, key string) (bool, error) {
						d, err := g.Check(ctx, core.Attempt{Actor: budget.Path([]string{key, "dev", "ann"}[:levels]...)})
						return d.Allowed, err
					}})
			}
		}
		return all
	}}
}
