package seckill

import (
	"context"
	"fmt"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
)

// Durability says what must have happened to a change before a guard confirms it.
type Durability int

const (
	// Fast means that Redis has made the change. Redis replicates it afterwards, so a failover can lose it.
	Fast Durability = iota
	// Acked means that, in addition, the required number of replicas have received the change and hold it in
	// memory. This is not consensus: see [Options].Replicas.
	Acked
)

// ackOptions checks the options for durability and fills in their defaults. It panics on mistakes.
func ackOptions(e *core.Engine, name string, options Options) Options {
	if options.Durability == Fast {
		if options.Replicas != 0 || options.AckWithin != 0 {
			panic(fmt.Sprintf("seckill: a Fast guard does not wait for replicas: "+
				"set Durability to Acked, or leave Replicas and AckWithin out (guard %q)", name))
		}
		return options
	}
	if options.Durability != Acked {
		panic(fmt.Sprintf("seckill: a Durability of %d: set it to Fast or Acked (guard %q)",
			options.Durability, name))
	}
	if options.Replicas == 0 {
		options.Replicas = 1
	}
	if options.AckWithin == 0 {
		options.AckWithin = e.Deadline() / 2
	}
	if options.Replicas < 0 {
		panic(fmt.Sprintf("seckill: a Replicas of %d: set it to 1 or more (guard %q)",
			options.Replicas, name))
	}
	if options.AckWithin < time.Millisecond || options.AckWithin >= e.Deadline() {
		panic(fmt.Sprintf("seckill: an AckWithin of %v: set it to a millisecond or more, "+
			"and less than the engine's deadline of %v, which WithDeadline sets (guard %q)",
			options.AckWithin, e.Deadline(), name))
	}
	if !e.CanWait() {
		panic(fmt.Sprintf("seckill: an Acked guard needs two commands on one connection, which %T "+
			"cannot do: pass core.New the *redis.Client, *redis.ClusterClient or *redis.Ring "+
			"that it was made of (guard %q)", e.Client(), name))
	}
	return options
}

// runYes runs a script whose yes callers rely on. It waits for replicas if the guard is Acked.
func (g *Guard) runYes(
	ctx context.Context, limit time.Duration, s *script.Script, keys []string, args ...any,
) (any, error) {
	return g.runUntil(ctx, saysYes, &script.Call{Limit: limit, Script: s, Keys: keys, Args: args})
}

// runUntil is runYes for other replies that callers rely on.
func (g *Guard) runUntil(ctx context.Context, yes func(reply any) bool, c *script.Call) (any, error) {
	if g.options.Durability == Fast {
		return g.Engine().RunWithin(ctx, c.Limit, c.Script, c.Keys, c.Args...)
	}
	acks := script.Acks{Replicas: g.options.Replicas, Within: g.options.AckWithin, Needed: yes}
	return g.Engine().RunAcked(ctx, c, acks)
}

// saysYes reports whether the reply of a script must last: the reason ok, or a number that is not negative. A
// refusal need not wait, even if its call took back expired holds: they have expired on a replica too.
func saysYes(reply any) bool {
	switch reply := reply.(type) {
	case int64:
		return reply >= 0
	case []any:
		return len(reply) > 0 && reply[0] == string(core.ReasonOK)
	}
	return false
}

// unconfirmed turns a reservation that too few replicas have into a refusal.
//
// If the guard made the reservation's ID, no client can ask for it again, so the reservation is cancelled. If
// the ID came from outside, the reservation stays held for a retry. This call was refused, so it does not
// count among the calls that were allowed.
func (g *Guard) unconfirmed(at *stock, d core.Decision) core.Decision {
	a := d.Attempt
	g.UndoLater(core.ErrUnconfirmed, func(ctx context.Context) (err error) {
		if a.MadeID() {
			_, err = g.cancel(ctx, a) // observed
		} else {
			_, err = at.end(ctx, ending{
				run: g.Engine().RunWithin, script: seckillCancelScript, args: g.cancelArgs("1"), // it stays held
			}, a)
		}
		return err
	})
	d.Reason, d.RetryAfter, d.Source = core.ReasonUnconfirmed, time.Second, core.SourceRedis
	d.Attempt = d.Attempt.WithoutCall()
	return d
}
