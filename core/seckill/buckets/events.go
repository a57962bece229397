package buckets

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
)

// Events is [seckill.Guard.Events] for the outboxes of all buckets, each in its order, merged by the servers'
// clocks. All events of one reservation, and of one buyer, are in one outbox. Each bucket is opened with its
// share of the stock, each is closed, and stock moves between them.
//
// The Position of an event stands for a place in each outbox. Only Events can use it. A position from an
// earlier sale of the item, one with another epoch, means the beginning of the present sale.
func (g *Guard) Events(ctx context.Context, item, after string, count int) ([]seckill.Event, error) {
	return kit.Look(ctx, &g.Base, "events", core.Attempt{}, func() (events []seckill.Event, err error) {
		if item == "" || count < 1 || count > 1000 {
			return g.parts.Events(ctx, item, after, count) // which says what is wrong
		}
		_, err = g.locate(ctx, item, func(at *spread) (found bool, err error) {
			events, err = at.events(ctx, after, count)
			return len(events) > 0, err
		})
		return events, err
	})
}

// events returns the events after a position: the sale's epoch and the list of the last positions in each
// outbox, "epoch:position,position,...".
func (s *spread) events(ctx context.Context, after string, count int) ([]seckill.Event, error) {
	last := make([]string, len(s.tags))
	epoch, positions, _ := strings.Cut(after, ":")
	if epoch == s.epoch {
		if last = strings.Split(positions, ","); len(last) != len(s.tags) {
			return nil, fmt.Errorf("%w: %.100q is no position", core.ErrInvalid, after)
		}
	}
	waiting := make([][]seckill.Event, len(s.tags))
	err := s.each(func(n int, tag string) (err error) {
		waiting[n], err = s.g.parts.Events(ctx, tag, last[n], count)
		return err
	})
	if err != nil {
		return nil, err
	}
	var events []seckill.Event
	for len(events) < count {
		next := earliest(waiting)
		if next < 0 {
			break
		}
		event := waiting[next][0]
		waiting[next] = waiting[next][1:]
		last[next] = event.Position
		event.Position, event.Bucket = s.epoch+":"+strings.Join(last, ","), next
		events = append(events, event)
	}
	return events, nil
}

// earliest returns the index of the stream with the earliest first event, or -1 if all are empty.
func earliest(streams [][]seckill.Event) int {
	first := -1
	for n, events := range streams {
		if len(events) > 0 && (first < 0 || earlier(events[0].Position, streams[first][0].Position)) {
			first = n
		}
	}
	return first
}

// earlier compares two positions in streams.
func earlier(a, b string) bool {
	read := func(position string) (ms, number uint64) {
		left, right, _ := strings.Cut(position, "-")
		ms, _ = strconv.ParseUint(left, 10, 64)
		number, _ = strconv.ParseUint(right, 10, 64)
		return ms, number
	}
	aMS, aNumber := read(a)
	bMS, bNumber := read(b)
	return aMS < bMS || aMS == bMS && aNumber < bNumber
}

// OutboxKeys returns the keys of all outboxes of a sale, one per bucket, in the order of the buckets, for
// readers with a consumer group. They contain the sale's epoch, so a sale that is opened again has other
// keys. [seckill.ErrNoSale] means that there is no such sale, or that it has not been opened yet.
// [seckill.ParseEvent] reads the messages.
func (g *Guard) OutboxKeys(ctx context.Context, item string) ([]string, error) {
	return kit.Look(ctx, &g.Base, "outbox", core.Attempt{}, func() (keys []string, err error) {
		err = g.ofSale(ctx, item, func(at *spread) (found bool, err error) {
			if _, found, err = at.look(ctx, 0); err != nil || !found {
				return found, err
			}
			keys = nil
			for _, tag := range at.tags {
				keys = append(keys, g.parts.OutboxKey(tag))
			}
			return true, nil
		})
		return keys, err
	})
}
