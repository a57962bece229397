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
)

const (
	// batch is how many messages are handled in one transaction at most.
	batch = 100
	// blocks is how long one call waits for new messages, and so how long a signal may go unheard.
	blocks = time.Second
	// stepLimit is how long one step may take. A step that has begun is not given up for a signal.
	stepLimit = 30 * time.Second
	// After an error a consumer waits, each time twice as long.
	shortestPause, longestPause = 50 * time.Millisecond, 5 * time.Second
)

// outbox is one stream with the events of an item's sale.
type outbox struct{ item, key string }

// consumer writes the events of outboxes into a store. Redis keeps for its group what has been handed out, to whom, and what of
// it is done; the consumer itself keeps nothing, so it may die at any moment.
//
// Each message is handled at least once: it is done (XACK) when the store has it, and not before. That makes it count once: the
// store takes the same event again without a change.
type consumer struct {
	rdb        redis.UniversalClient
	store      *store
	group      string        // of all consumers that share the work
	name       string        // of this one, now and after a restart
	claimAfter time.Duration // how long another one may leave a message undone; two may then have it at once, which does no harm
	log        *slog.Logger
}

// run follows all outboxes until ctx is over, each by itself: on a cluster they are on different servers.
func (c *consumer) run(ctx context.Context, outboxes []outbox) {
	var all sync.WaitGroup
	for _, o := range outboxes {
		all.Go(func() { c.follow(ctx, o) })
	}
	all.Wait()
}

func (c *consumer) follow(ctx context.Context, o outbox) {
	pause := shortestPause
	for ctx.Err() == nil {
		err := c.step(context.WithoutCancel(ctx), o)
		if err == nil {
			pause = shortestPause
			continue
		}
		c.log.Warn("the orders have to wait", "outbox", o.key, "pause", pause, "err", err)
		wait(ctx, pause)
		pause = min(2*pause, longestPause)
	}
}

// step handles the next messages, if there are any. What it leaves undone, because of an error or a sudden death, is pending, and
// the next step begins with that.
func (c *consumer) step(ctx context.Context, o outbox) error {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	messages, err := c.next(ctx, o.key)
	if redis.HasErrorPrefix(err, "NOGROUP") {
		return c.join(ctx, o.key)
	}
	if err != nil || len(messages) == 0 {
		return err
	}
	if err := c.store.write(ctx, o.item, messages, c.log); err != nil {
		return err
	}
	// Done, but not deleted: Reconcile counts by the stream, which goes when its sale does.
	ids := make([]string, len(messages))
	for i, m := range messages {
		ids[i] = m.ID
	}
	return c.rdb.XAck(ctx, o.key, c.group, ids...).Err()
}

// next returns messages to be handled, the oldest first: those that this consumer was given before and has not done, among them
// those that it takes over from one that seems to be dead, or else new ones.
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

// join makes the group, which begins with the sale's first event however late it is made. It does not make the stream (no MKSTREAM):
// that would live for ever if the sale was never opened.
func (c *consumer) join(ctx context.Context, key string) error {
	err := c.rdb.XGroupCreate(ctx, key, c.group, "0").Err()
	switch {
	case err == nil, redis.HasErrorPrefix(err, "BUSYGROUP"): // another one was faster
		return nil
	case strings.Contains(err.Error(), "requires the key to exist"):
		return errors.New("the sale is not open")
	}
	return fmt.Errorf("join: %w", err)
}
