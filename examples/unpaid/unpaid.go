// Package unpaid calls the application back when a reservation of a flash sale ends unpaid: to void the
// order, or to write to the buyer. It is a package to copy, and needs no more than the outbox of the sale and
// a queue (package delay).
//
// The sale appends an event to its outbox in the same script that takes the units back, so none is missed. A
// relay turns each such event into a task, once, and a worker runs the application's function for it, again
// and again until it returns nil or has had all its tries:
//
//	callbacks := unpaid.New(rdb, sale, delay.New(gate, "unpaid", delay.Options{}))
//	go sale.SweepEvery(ctx, time.Second, items) // notices the end of a hold in time
//	go callbacks.RelayEvery(ctx, time.Second, items)
//	go callbacks.Work(ctx, voidOrder, delay.WorkOptions{})
package unpaid

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

const (
	// group is the consumer group of the outboxes. Redis remembers for it what was read.
	group = "unpaid"
	// relay is its only consumer. Processes may relay the same event at once, as it becomes one task.
	relay = "relay"
	// batch is how many events one step reads.
	batch = 100
)

// Expired is a reservation that has ended unpaid.
type Expired struct {
	Item     string `json:"item"`
	ID       string `json:"id"` // the operation ID of the reservation
	Buyer    string `json:"buyer"`
	Quantity int64  `json:"quantity"`
}

// Callbacks calls the application back. It is safe for concurrent use.
type Callbacks struct {
	rdb   redis.UniversalClient
	sale  *seckill.Guard
	queue *delay.Queue
}

// New makes the callbacks of a sale. The queue should be used for nothing else.
func New(rdb redis.UniversalClient, sale *seckill.Guard, queue *delay.Queue) *Callbacks {
	return &Callbacks{rdb, sale, queue}
}

// Work runs the function for each reservation that has ended unpaid, until ctx is over: at least once for
// each end, so it has to stand repetition. A reservation that has ended can still be paid, while units are
// left: the function asks the payment service before it voids an order, and what reads the outbox for orders
// counts a sale that is late (seckill.Event.Late).
func (c *Callbacks) Work(
	ctx context.Context, onExpired func(context.Context, Expired) error, o delay.WorkOptions,
) error {
	return delay.Work(ctx, c.queue, func(ctx context.Context, t delay.Task) error {
		var e Expired
		if err := json.Unmarshal(t.Payload, &e); err != nil {
			return delay.SkipRetry(fmt.Errorf("unpaid: not a reservation: %w", err))
		}
		return onExpired(ctx, e)
	}, o)
}

// RelayEvery relays the events of the items' sales until ctx is over. A step that fails is repeated.
func (c *Callbacks) RelayEvery(ctx context.Context, interval time.Duration, items func() []string) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		for _, item := range items() {
			if err := c.Relay(ctx, item); err != nil && ctx.Err() == nil {
				slog.WarnContext(ctx, "callbacks of unpaid reservations are delayed", "item", item, "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Relay makes tasks of the events that are new. A relay that dies at any moment loses none: an event that was
// read stays pending until its task is scheduled, and the next relay begins with those that are pending.
func (c *Callbacks) Relay(ctx context.Context, item string) error {
	if _, err := c.sale.Status(ctx, item); err != nil { // there may be no sale yet
		return err
	}
	key := c.sale.OutboxKey(item)
	err := c.rdb.XGroupCreate(ctx, key, group, "0").Err() // from the first event on
	if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
		return fmt.Errorf("join: %w", err)
	}
	var failed error
	for _, from := range []string{"0", ">"} { // pending, new
		for after := from; ; {
			messages, err := c.read(ctx, key, after)
			if err != nil || len(messages) == 0 {
				failed = errors.Join(failed, err)
				break
			}
			failed = errors.Join(failed, c.schedule(ctx, item, key, messages))
			if from == "0" {
				after = messages[len(messages)-1].ID
			}
		}
	}
	return failed
}

func (c *Callbacks) read(ctx context.Context, key, after string) ([]redis.XMessage, error) {
	streams, err := c.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{
		Streams: []string{key, after}, Group: group, Consumer: relay, Count: batch, Block: -1,
	}).Result()
	if errors.Is(err, redis.Nil) || err == nil && len(streams) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	return streams[0].Messages, nil
}

// schedule makes tasks of events, and acknowledges those that have one and those that need none. An event is
// acknowledged but not deleted: Verify counts by the stream, which goes with its sale.
func (c *Callbacks) schedule(ctx context.Context, item, key string, messages []redis.XMessage) error {
	var done []string
	var failed error
	for _, m := range messages {
		e, err := seckill.ParseEvent(m)
		if err == nil && e.Kind == seckill.EventExpired {
			err = c.scheduleOne(ctx, Expired{item, e.ID, e.Buyer, e.Quantity}, keyfuncs.JoinTexts(key, m.ID))
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("event %s: %w", m.ID, err)) // it stays pending
			continue
		}
		done = append(done, m.ID)
	}
	if len(done) > 0 {
		failed = errors.Join(failed, c.rdb.XAck(ctx, key, group, done...).Err())
	}
	return failed
}

func (c *Callbacks) scheduleOne(ctx context.Context, e Expired, id string) error {
	payload, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = c.queue.Schedule(ctx, id, time.Time{}, payload) // once, however often it is relayed
	return err
}
