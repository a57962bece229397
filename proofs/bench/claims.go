package bench

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
)

// naiveSale is what articles on flash sales show: a set of buyers and a counter. It knows no quantities, no
// holds that expire, no retries, no times and no events, and its keys never expire.
const naiveSale = `
if redis.call('SISMEMBER', KEYS[1], ARGV[1]) == 1 then
  return 0
end
local stock = tonumber(redis.call('GET', KEYS[2]))
if not stock or stock <= 0 then
  return -1
end
redis.call('DECR', KEYS[2])
redis.call('SADD', KEYS[1], ARGV[1])
return 1`

// naiveVote is the same for votes: a set of voters and a tally. It does not know what a voter voted for, so
// no vote can be taken back, changed or counted again.
const naiveVote = `
if redis.call('SADD', KEYS[1], ARGV[1]) == 0 then
  return 0
end
redis.call('HINCRBY', KEYS[2], ARGV[2], 1)
return 1`

// manyUnits is a stock that no run sells out.
const manyUnits = 1 << 40

// saleClaims is the group of sales. A key is a buyer, who may have one unit of a stock that never ends. The
// hot key is a crowd instead: buyers who all come too late for the one unit of another sale.
func saleClaims(ctx context.Context, rdb *redis.Client) group {
	return group{part: "sales", name: "Sales on Redis", redis: rdb, loads: allLoads, claims: true,
		subjects: func(
			int, time.Duration,
		) []subject {
			naive := must(rdb.ScriptLoad(ctx, naiveSale).Result())
			must(rdb.MSet(ctx, "naive:{endless}:stock", manyUnits, "naive:{hot}:stock", 1).Result())
			gate := core.New(rdb, core.WithDeadline(30*time.Second), core.WithRefusalMemory(0))
			remembers := core.New(rdb, core.WithDeadline(30*time.Second), core.WithPrefix("remembers"))

			var late atomic.Int64
			buyer := func(key string) (item, buyer string) {
				if key == hotKey {
					return "hot", "late-" + strconv.FormatInt(late.Add(1), 10)
				}
				return "endless", key
			}
			sales := func(name string, g *seckill.Guard, keys string) subject {
				must(g.Open(ctx, "endless", seckill.Sale{Stock: manyUnits, Hold: time.Hour}))
				must(g.Open(ctx, "hot", seckill.Sale{Stock: 1, Hold: time.Hour}))
				return subject{name: name, max: 1, keys: keys, allow: func(
					ctx context.Context, key string,
				) (bool, error) {
					item, actor := buyer(key)
					d, err := g.Check(ctx, core.Attempt{Actor: actor, Resource: item})
					return d.Allowed, err
				}}
			}
			return []subject{
				floorOn(ctx, rdb),
				{name: "naive script", max: 1, keys: "naive:*",
					allow: func(ctx context.Context, key string) (bool, error) {
						item, actor := buyer(key)
						n, err := rdb.EvalSha(ctx, naive, []string{"naive:{" + item + "}:buyers", "naive:{" + item + "}:stock"},
							actor).Int()
						return n == 1, err
					}},
				sales("Seckill", seckill.New(gate, "sale", seckill.Options{}), "gatehouse:seckill:sale:*"),
				sales("Seckill, no outbox", seckill.New(gate, "quiet", seckill.Options{NoOutbox: true}),
					"gatehouse:seckill:quiet:*"),
				sales("Seckill, remembering", seckill.New(remembers, "sale", seckill.Options{}),
					"remembers:seckill:sale:*"),
			}
		}}
}

// voteClaims is the group of votes, all in one poll of ten choices. A key is a voter, so the hot key is a
// voter who tries again and again.
func voteClaims(ctx context.Context, rdb *redis.Client) group {
	return group{part: "votes", name: "Votes on Redis", redis: rdb, loads: allLoads, claims: true,
		subjects: func(
			int, time.Duration,
		) []subject {
			naive := must(rdb.ScriptLoad(ctx, naiveVote).Result())
			gate := core.New(rdb, core.WithDeadline(30*time.Second), core.WithRefusalMemory(0))
			remembers := core.New(rdb, core.WithDeadline(30*time.Second), core.WithPrefix("remembers"))

			var cast atomic.Int64
			choice := func() string { return "choice-" + strconv.FormatInt(cast.Add(1)%10, 10) }
			ballots := func(name string, g *votes.Guard, keys string) subject {
				return subject{name: name, max: 1, keys: keys, allow: func(
					ctx context.Context, key string,
				) (bool, error) {
					d, err := g.Check(ctx, core.Attempt{Actor: key, Resource: "poll", Item: choice()})
					return d.Allowed, err
				}}
			}
			return []subject{
				floorOn(ctx, rdb),
				{name: "naive script", max: 1, keys: "naive-votes:*",
					allow: func(ctx context.Context, key string) (bool, error) {
						n, err := rdb.EvalSha(ctx, naive,
							[]string{"naive-votes:{poll}:voters", "naive-votes:{poll}:tally"}, key, choice()).Int()
						return n == 1, err
					}},
				ballots("Votes", votes.New(gate, "vote", votes.Options{}), "gatehouse:votes:vote:*"),
				ballots("Votes, remembering", votes.New(remembers, "vote", votes.Options{}), "remembers:votes:vote:*"),
			}
		}}
}
