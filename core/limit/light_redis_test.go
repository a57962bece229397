package limit

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
)

// allowing is a client whose server allows everything, without a network.
type allowing struct{ *redis.Client }

func (allowing) Process(_ context.Context, cmd redis.Cmder) error {
	cmd.(interface{ SetVal(any) }).SetVal(allowed)
	return nil
}

var allowed any = "5 1000000000000000 1000000"

// TestACheckOnRedisAllocatesLittleMoreThanItsCall: each reply that was read took an object of its own, the
// twelfth, and a context with a deadline of its own four. Those that are left are the command's, its
// arguments, the keys, the context, and the claim.
func TestACheckOnRedisAllocatesLittleMoreThanItsCall(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	const most = 9
	for _, k := range kinds {
		g := k.make(core.New(allowing{rdb}, core.WithDeadline(time.Minute)), "w", PerMinute(100))
		a, ctx := core.Attempt{Actor: "ann"}, context.WithoutCancel(t.Context()) // as of a middleware
		check := func() {
			if d, err := g.Check(ctx, a); err != nil || d.Source != core.SourceRedis || d.Remaining != 5 {
				t.Fatalf("%s: %+v, %v", k.name, d, err)
			}
		}
		if n := testing.AllocsPerRun(500, check); n > most {
			t.Errorf("%s: %v allocations, want %d at most", k.name, n, most)
		}
	}
}
