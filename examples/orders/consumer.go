package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core/seckill"
)

const (
	// batch is the maximum number of messages in one transaction.
	batch = 100
	// blocks is how long one call waits for new messages, and so how long a signal may wait.
	blocks = time.Second
	// stepLimit is the maximum duration of one step. A signal does not interrupt a step.
	stepLimit = 30 * time.Second
	// looks is the interval at which a consumer looks for new outboxes.
	looks = time.Second
	// After an error a consumer waits, each time twice as long.
	shortestPause, longestPause = 50 * time.Millisecond, 5 * time.Second
)

// outbox is one stream with the events of an item's sale. A sale has one per bucket.
type outbox struct {
	item   string
	bucket int
	key    string
}

// errNoOutbox says that the stream does not exist: the sale is not open yet, ended long ago, or was lost.
var errNoOutbox = errors.New("there is no such outbox")

// consumer writes the events of outboxes into a store. Redis remembers for its group which messages were
// delivered, to which consumer, and which are acknowledged. The consumer itself keeps nothing, so it may
// die at any moment.
//
// Each message is handled at least once: the consumer acknowledges it (XACK) only when the store has it. It
// still counts once, because storing the same event again changes nothing.
type consumer struct {
	rdb   redis.UniversalClient
	sale  sales
	store *store
	group string // shared by all consumers that share the work
	name  string // of this consumer; it stays the same after a restart
	// idle time after which it claims another's message; both may handle it, which does no harm
	claimAfter time.Duration
	log        *slog.Logger
}

// run follows the sales of all items until ctx ends.
func (c *consumer) run(ctx context.Context, items []string) {
	var all sync.WaitGroup
	for _, item := range items {
		all.Go(func() { c.watch(ctx, item) })
	}
	all.Wait()
}

// watch follows all outboxes of an item, each by itself, because on a cluster they are on different
// servers. Their number is known when the sale is open. A sale of several buckets that was lost and is
// opened again has new outboxes, so watch keeps looking. It follows the old ones as long as they exist.
func (c *consumer) watch(ctx context.Context, item string) {
	var all sync.WaitGroup
	defer all.Wait()
	var followed sync.Map // by key
	logged := ""
	for ctx.Err() == nil {
		keys, err := c.sale.OutboxKeys(ctx, item)
		switch {
		case err == nil:
			logged = ""
		case err.Error() != logged && ctx.Err() == nil:
			logged = err.Error()
			c.log.Warn("orders are delayed", "item", item, "err", err)
		}
		for bucket, key := range keys {
			if _, already := followed.LoadOrStore(key, true); !already {
				all.Go(func() {
					defer followed.Delete(key)
					c.follow(ctx, outbox{item, bucket, key})
				})
			}
		}
		wait(ctx, looks)
	}
}

// follow handles what arrives in an outbox until ctx ends, or until the outbox no longer exists.
func (c *consumer) follow(ctx context.Context, o outbox) {
	pause := shortestPause
	for ctx.Err() == nil {
		err := c.step(context.WithoutCancel(ctx), o)
		if err == nil {
			pause = shortestPause
			continue
		}
		c.log.Warn("orders are delayed", "outbox", o.key, "pause", pause, "err", err)
		if errors.Is(err, errNoOutbox) {
			return
		}
		wait(ctx, pause)
		pause = min(2*pause, longestPause)
	}
}

// step handles the next messages, if there are any. Messages that it does not finish, because of an error
// or a crash, stay pending, and the next step begins with them.
func (c *consumer) step(ctx context.Context, o outbox) error {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	opened, err := c.opened(ctx, o.key)
	if err != nil {
		return err
	}
	messages, err := c.next(ctx, o.key)
	if redis.HasErrorPrefix(err, "NOGROUP") {
		return c.join(ctx, o.key)
	}
	if err != nil || len(messages) == 0 {
		return err
	}
	switch still, err := c.opened(ctx, o.key); {
	case err != nil:
		return err
	case still != opened:
		return errors.New("the sale was lost and opened again: the messages may belong to either of the two sales")
	}
	if err := c.store.write(ctx, o, opened.Epoch, messages, c.log); err != nil {
		return err
	}
	// Acknowledged but not deleted: Verify counts by the stream, which is deleted with its sale.
	ids := make([]string, len(messages))
	for i, m := range messages {
		ids[i] = m.ID
	}
	return c.rdb.XAck(ctx, o.key, c.group, ids...).Err()
}

// opened returns the first event of an outbox, whose epoch says which sale the outbox belongs to. It is
// read again per batch, because a sale of one bucket that was lost and opened again has its outbox at the
// same key.
func (c *consumer) opened(ctx context.Context, key string) (first seckill.Event, err error) {
	messages, err := c.rdb.XRangeN(ctx, key, "-", "+", 1).Result()
	if err != nil {
		return first, fmt.Errorf("read the beginning: %w", err)
	}
	if len(messages) == 0 {
		return first, errNoOutbox
	}
	if first, err = seckill.ParseEvent(messages[0]); err == nil && first.Kind != seckill.EventOpened {
		err = fmt.Errorf("the outbox begins with %q, so its sale is unknown", first.Kind)
	}
	return first, err
}

// next returns messages to handle, the oldest first: the pending messages of this consumer, among them
// those that it claims from one that seems to be dead, or else new ones.
func (c *consumer) next(ctx context.Context, key string) ([]redis.XMessage, error) {
	err := c.rdb.XAutoClaimJustID(ctx, &redis.XAutoClaimArgs{
		Stream: key, Group: c.group, Consumer: c.name, MinIdle: c.claimAfter, Start: "0", Count: batch,
	}).Err()
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	for _, from := range []string{"0", ">"} { // pending, new
		read, err := c.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{
			Streams: []string{key, from}, Group: c.group, Consumer: c.name, Count: batch, Block: blocks,
		}).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("read: %w", err)
		}
		if len(read) > 0 && len(read[0].Messages) > 0 {
			return read[0].Messages, nil
		}
	}
	return nil, nil
}

// join makes the group, which begins with the sale's first event however late it is made. It does not make
// the stream (no MKSTREAM), which would live forever if the sale never opened.
func (c *consumer) join(ctx context.Context, key string) error {
	err := c.rdb.XGroupCreate(ctx, key, c.group, "0").Err()
	switch {
	case err == nil, redis.HasErrorPrefix(err, "BUSYGROUP"): // another consumer was faster
		return nil
	case strings.Contains(err.Error(), "requires the key to exist"):
		return errNoOutbox
	}
	return fmt.Errorf("join: %w", err)
}
