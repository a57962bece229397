package recipes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// Unpaid calls the application back when a reservation of a sale ends unpaid: to void the order, or to write
// to the buyer. The sale appends an event to its outbox in the same script that takes the units back, so none
// is missed. A relay makes a task of each such event, once. A worker runs the application's function for it
// until it returns nil or has had all its tries:
//
//	unpaid := Unpaid{rdb, sale, delay.New(gate, "unpaid", delay.Options{})}
//	go sale.SweepEvery(ctx, time.Second, items) // notices the end of a hold in time
//	go unpaid.RelayEvery(ctx, time.Second, items)
//	go unpaid.Work(ctx, voidOrder, delay.WorkOptions{})
type Unpaid struct {
	Redis redis.UniversalClient
	Sale  *seckill.Guard
	Queue *delay.Queue // for nothing else
}

// Expired is a reservation that has ended unpaid.
type Expired struct {
	Item, ID, Buyer string
	Quantity        int64
}

// Work runs the function for each reservation that has ended unpaid, until ctx is over. The function has to
// stand repetition. A reservation that has ended can still be paid, while units are left: the function asks
// the payment service before it voids an order. For a reader of the outbox that is a sale that is late
// (seckill.Event.Late).
func (u Unpaid) Work(
	ctx context.Context, expired func(context.Context, Expired) error, o delay.WorkOptions,
) error {
	return delay.Work(ctx, u.Queue, func(ctx context.Context, t delay.Task) error {
		var e Expired
		if err := json.Unmarshal(t.Payload, &e); err != nil {
			return delay.SkipRetry(err)
		}
		return expired(ctx, e)
	}, o)
}

// RelayEvery relays the events of the items' sales until ctx is over.
func (u Unpaid) RelayEvery(ctx context.Context, interval time.Duration, items func() []string) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		for _, item := range items() {
			if err := u.Relay(ctx, item); err != nil && ctx.Err() == nil {
				slog.WarnContext(ctx, "unpaid reservations are relayed later", "item", item, "err", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// relay is the consumer group of an outbox, and its only consumer. Processes may relay the same event at
// once, because it becomes one task.
const relay = "unpaid"

// Relay makes tasks of the events that are new. A relay that dies loses none: an event stays pending until
// its task is scheduled, and the next relay begins with those that are pending.
func (u Unpaid) Relay(ctx context.Context, item string) error {
	if _, err := u.Sale.Status(ctx, item); err != nil { // there may be no sale yet
		return err
	}
	key := u.Sale.OutboxKey(item)
	err := u.Redis.XGroupCreate(ctx, key, relay, "0").Err() // from the first event on
	if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
		return err
	}
	var failed error
	for _, after := range []string{"0", ">"} { // pending, new
		for {
			streams, err := u.Redis.XReadGroup(ctx, &redis.XReadGroupArgs{
				Streams: []string{key, after}, Group: relay, Consumer: relay, Count: 100, Block: -1,
			}).Result()
			if err != nil && !errors.Is(err, redis.Nil) {
				return errors.Join(failed, err)
			}
			if len(streams) == 0 || len(streams[0].Messages) == 0 {
				break
			}
			for _, m := range streams[0].Messages {
				if err := u.schedule(ctx, item, m); err != nil {
					failed = errors.Join(failed, fmt.Errorf("event %s: %w", m.ID, err)) // it stays pending
				} else { // not deleted: Verify counts by the stream, which goes with its sale
					failed = errors.Join(failed, u.Redis.XAck(ctx, key, relay, m.ID).Err())
				}
				if after != ">" {
					after = m.ID
				}
			}
		}
	}
	return failed
}

// schedule makes a task of an event, if it is the end of a reservation.
func (u Unpaid) schedule(ctx context.Context, item string, m redis.XMessage) error {
	e, err := seckill.ParseEvent(m)
	if err != nil || e.Kind != seckill.EventExpired {
		return err
	}
	payload, err := json.Marshal(Expired{item, e.ID, e.Buyer, e.Quantity})
	if err != nil {
		return err
	}
	id := keyfuncs.JoinTexts(u.Sale.OutboxKey(item), m.ID) // one task, however often it is relayed
	_, err = u.Queue.Schedule(ctx, id, time.Time{}, payload)
	return err
}
