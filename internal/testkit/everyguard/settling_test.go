package everyguard_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/limit/lease"
	"github.com/gatehouse-go/gatehouse/core/redpacket"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/examples/newguard"
	"github.com/gatehouse-go/gatehouse/internal/testkit/everyguard"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// settled is a hook that counts the commands of a call, by a value of its context.
type settled struct{ redis.Hook }

type countKey struct{}

func count(ctx context.Context, n int) {
	if c, ok := ctx.Value(countKey{}).(*atomic.Int64); ok {
		c.Add(int64(n))
	}
}

func (settled) DialHook(next redis.DialHook) redis.DialHook { return next }

func (settled) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil {
			count(ctx, 1)
		}
		return err
	}
}

func (settled) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if err == nil {
			count(ctx, len(cmds))
		}
		return err
	}
}

// TestSettlingIgnoresTheEndOfItsContext: whoever writes "defer g.Settle(ctx, d, core.Rollback)" settles with
// the context of a request that is over. A lock, a permit and the units of a limit then stayed taken. Each
// guard sends what it sends with a context that lasts.
//
// Promise (Endings): `Settle` of every guard ignores the end of its context, so it may be deferred with the
// request's.
func TestSettlingIgnoresTheEndOfItsContext(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		rdb := b.NewClient(t)
		hooked, ok := rdb.(interface{ AddHook(hook redis.Hook) })
		if !ok {
			t.Fatalf("%T takes no hooks", rdb)
		}
		hooked.AddHook(settled{})
		e := guardtest.NewEngineOver(b, rdb, core.WithoutSharedCalls())
		guards := everyguard.On(e)
		guards["fixed window"] = limit.NewFixedWindow(e, "fixed", limit.PerHour(2))
		guards["token bucket"] = limit.NewTokenBucket(e, "bucket", limit.PerHour(2))
		guards["several limits"] = limit.NewSlidingWindow(e, "several", limit.PerHour(2), limit.PerMinute(2))
		guards["newguard"] = newguard.New(e, "new", 2, time.Hour)
		// A unit goes back into the hand, without a call, within its part of the window: a long one here.
		guards["limit/lease"] = lease.New(e, "leased", limit.PerDay(5000))
		ended, leave := context.WithCancel(t.Context())
		leave()
		late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		defer cancel()
		var gives []string
		for kind, g := range guards {
			for what, end := range endings(g) {
				sent := func(name string, ctx context.Context) int64 {
					t.Helper()
					n := &atomic.Int64{}
					ctx = context.WithValue(ctx, countKey{}, n)
					d := allowed(t, g, fmt.Sprint(what, "-", name))
					if err := g.Settle(ctx, d, end); err != nil {
						t.Errorf("%s: %s with a context that %s: %v", kind, what, name, err)
					}
					return n.Load()
				}
				lasts := sent("lasts", t.Context())
				for name, ctx := range map[string]context.Context{"was cancelled": ended, "is late": late} {
					if n := sent(name, ctx); (n > 0) != (lasts > 0) {
						t.Errorf("%s: %s sends %d commands with a context that %s, and %d with one that lasts",
							kind, what, n, name, lasts)
					}
				}
				if lasts > 0 {
					gives = append(gives, kind)
				}
			}
		}
		kinds := []string{"lock", "semaphore", "limit", "budget", "quota", "seckill", "votes", "newguard"}
		for _, kind := range kinds {
			if !slices.Contains(gives, kind) {
				t.Errorf("%s settles nothing in Redis: the test sees too little", kind)
			}
		}
	})
}

// endings are those that a guard takes.
func endings(g core.Guard) map[string]core.Ending {
	all := map[string]core.Ending{"rollback": core.Rollback, "commit": core.Commit}
	if g.Traits().Spends {
		all["spend"] = core.CommitCost(2)
	}
	if g.Traits().KeepsOutcome {
		all["outcome"] = core.CommitWith(&core.Outcome{Status: 200, Body: []byte("done")})
	}
	return all
}

// allowed returns an allowed decision about something of its own.
func allowed(t *testing.T, g core.Guard, name string) core.Decision {
	t.Helper()
	a := core.Attempt{Actor: name, Resource: name, Item: "red", ID: name}
	switch g := g.(type) {
	case interface {
		Open(ctx context.Context, item string, sale seckill.Sale) (bool, error)
	}:
		if _, err := g.Open(t.Context(), name, seckill.Sale{Stock: 10}); err != nil {
			t.Fatal(err)
		}
	case *redpacket.Guard:
		packet := redpacket.Packet{Total: 10, Shares: 2, Expires: time.Now().Add(time.Hour)}
		if _, err := g.Create(t.Context(), name, packet); err != nil {
			t.Fatal(err)
		}
	}
	d := guardtest.Check(t, g, a)
	if !d.Allowed && d.Reason != "wait" && d.Reason != "waiting" {
		t.Errorf("%s: %+v", g.Name(), d)
	}
	return d
}

// TestSettlingKeepsTheValuesOfItsContext: traces go on.
func TestSettlingKeepsTheValuesOfItsContext(t *testing.T) {
	n := &atomic.Int64{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), countKey{}, n))
	cancel()
	if s := core.Settling(ctx); s.Err() != nil || s.Value(countKey{}) != n {
		t.Errorf("%v, %v", s.Err(), s.Value(countKey{}))
	}
	if core.Settling(context.Background()) != context.Background() {
		t.Error("a context that never ends was wrapped")
	}
}
