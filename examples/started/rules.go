// Package started has the code that docs/getting-started.md shows, and tests that run it.
package started

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

func newEngine() (*redis.Client, *core.Engine) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true})
	gate := core.New(rdb)

	return rdb, gate
}

// shop is what the page builds, step by step.
type shop struct {
	perIP, perUser, vote, buy ratelimit.Rule
	ballots                   *votes.Guard
	sale                      *seckill.Guard
}

func newShop(gate *core.Engine) shop {
	perIP := ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "site", limit.PerMinute(100)),
		Who:   keyfuncs.IP(),
	}

	perUser := ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "api", limit.PerSecond(5), limit.PerMinute(60)),
		Who:   keyfuncs.User("uid"),
	}

	ballots := votes.New(gate, "poll", votes.Options{Find: findPoll})
	vote := ratelimit.Rule{
		Guard: ballots,
		Who:   keyfuncs.User("uid"),
		What:  keyfuncs.Param("poll"),
		Which: keyfuncs.Form("choice"),
	}

	sale := seckill.New(gate, "sale", seckill.Options{})
	buy := ratelimit.Rule{
		Guard: sale,
		Who:   keyfuncs.User("uid"),
		What:  keyfuncs.Param("sku"),
		ID:    keyfuncs.IdempotencyKey(),
	}

	return shop{perIP, perUser, vote, buy, ballots, sale}
}

// findPoll knows the polls. It answers from memory, because each vote asks it.
func findPoll(_ context.Context, name string) (votes.Poll, error) {
	if name != "final" {
		return votes.Poll{}, votes.ErrNoPoll
	}
	return votes.Poll{Choices: []string{"red", "blue"}}, nil
}

func openSale(ctx context.Context, sale *seckill.Guard) error {
	_, err := sale.Open(ctx, "tv-55", seckill.Sale{
		Stock:  100,
		Closes: time.Now().Add(2 * time.Hour),
	})
	if err != nil {
		return fmt.Errorf("open the sale: %w", err)
	}
	return nil
}

// accounts are those of the shop, by the SHA-256 of their API key in hex. An application has them in a
// database.
var accounts = map[string]string{
	"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824": "ann", // of hello
	"486ea46224d1bb4fb680f34f7c9ad96a8f24ec88be73ea8e5a6c65260e9cb8a7": "bob", // of world
}
