package seckill

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
)

// Event is one change of a sale.
type Event struct {
	// Position is the event's place in the outbox, as Redis names it: "milliseconds-number", by the server's
	// clock, and larger than all before. In a sale of several buckets, Events gives it a form of its own that
	// stands for a place in each outbox; it means something to Events only.
	Position string
	// Kind is what has happened.
	Kind EventKind
	// ID is the operation ID: the reservation's, of EventRestocked the restock's own, of EventLent and
	// EventBorrowed the loan's, the same for both. EventOpened and EventClosed have none.
	ID string
	// Key is the ID as the sale keeps it: letters, digits and marks of ASCII, at most 96 bytes. No two IDs
	// have the same Key, while the ID itself may be the short name of a long one: see [ParseEvent]. A
	// consumer's unique key is best made of the item, the sale's Epoch, the Bucket and this: a sale that is
	// opened again may have the same IDs, and so may buyers of different buckets.
	Key string
	// Buyer is whose reservation it is, where there is one.
	Buyer string
	// Quantity is in units: of EventOpened the stock, of EventRestocked what was added to it, negative when
	// taken away. EventClosed has none.
	Quantity int64
	// Ends is until when the reservation waits to be confirmed. EventHeld only.
	Ends time.Time
	// Late reports that the reservation had expired before it was confirmed, so that its units are not those
	// that were held. EventSold only.
	Late bool
	// Epoch is the sale's: see [Status]. EventOpened only, the first event of each outbox; what follows is of
	// the same sale, until the next EventOpened with another.
	Epoch int64
	// Bucket is the number of the bucket, from 0, that Events has found the event in. Whoever reads the
	// outboxes directly has it from [Guard.OutboxKeys].
	Bucket int
}

// EventKind is what has happened to a sale.
type EventKind string

// What happens to a sale. A reservation is held first; then it is sold, cancelled or expired. One that has
// expired may be sold after all ([Event].Late), and one that was cancelled or has expired may be held again
// by the same operation ID.
//
// In a sale of several buckets each of them is opened, with its share of the stock, and each is closed; and
// stock moves between them.
const (
	// EventOpened: Open has put the item on sale. It is the first event of a sale.
	EventOpened EventKind = "opened"
	// EventHeld: Check has reserved units for a buyer.
	EventHeld EventKind = "held"
	// EventSold: the reservation is confirmed.
	EventSold EventKind = "sold"
	// EventCancelled: the reservation was cancelled, and its units have gone back.
	EventCancelled EventKind = "cancelled"
	// EventExpired: the reservation's time was over, and its units have gone back.
	EventExpired EventKind = "expired"
	// EventRestocked: Restock has changed the stock.
	EventRestocked EventKind = "restocked"
	// EventClosed: Close has closed the sale. A sale that closes at the time it was opened with has no such
	// event.
	EventClosed EventKind = "closed"
	// EventLent and EventBorrowed: units of the stock have gone to another bucket, units have come from one.
	// The sale as a whole has not changed; an order system passes them over.
	EventLent     EventKind = "lent"
	EventBorrowed EventKind = "borrowed"
)

// Events returns the events of a sale after a position, the oldest first, at most count of them (1 to 1000).
// An empty position means the beginning; to continue, pass the Position of the last event seen. The result is
// empty when there are no more events, and for an item that was never on sale.
//
// The scripts that change the sale write the outbox, so every change has its event, every event has its
// change, and all readers see the same order. A reader that stores its position after it has handled an event
// handles each event at least once, and recognizes a repeated one by its Position. The outbox is kept as long
// as the sale.
//
// In a sale of several buckets, Events reads all outboxes, each in its order, and merges them by the servers'
// clocks. All events of one reservation, and of one buyer, are in one outbox. A position from an earlier sale
// of the item, one with another epoch, means the beginning of the present sale.
//
// A failover of Redis can lose the last changes. A change is lost together with its event, so the sale and
// its outbox still agree. But a reader may have seen events that are lost, and new events may get smaller
// positions than those.
func (g *Guard) Events(ctx context.Context, item, after string, count int) ([]Event, error) {
	return core.Look(ctx, &g.Base, "events", core.Attempt{}, func() ([]Event, error) {
		return g.events(ctx, item, after, count)
	})
}

func (g *Guard) events(ctx context.Context, item, after string, count int) ([]Event, error) {
	if item == "" || count < 1 || count > 1000 {
		return nil, fmt.Errorf("%w: events of item %.100q, %d at most: name the item, and ask for 1 to 1000",
			core.ErrInvalid, item, count)
	}
	var events []Event
	err := g.locate(ctx, item, func(at stock) (found bool, err error) {
		events, err = at.events(ctx, after, count)
		return len(events) > 0, err
	})
	return events, err
}

// OutboxKey returns the key of the outbox of a sale of one bucket, a Redis stream, for a reader with a
// consumer group. It exists from Open on; [ParseEvent] reads its messages. Such a reader should not trim it:
// [Guard.Verify] counts by it.
func (g *Guard) OutboxKey(item string) string { return g.single(item).key("outbox") }

// OutboxKeys returns the keys of all outboxes of a sale, one for each bucket, in their order, for readers
// with a consumer group. The keys of a sale of several buckets have its epoch in them: a sale that is opened
// again has others. It returns [ErrNoSale] where there is no such sale, or none that is open yet.
func (g *Guard) OutboxKeys(ctx context.Context, item string) ([]string, error) {
	return core.Look(ctx, &g.Base, "outbox", core.Attempt{}, func() (keys []string, err error) {
		err = g.ofSale(ctx, item, func(at stock) (found bool, err error) {
			keys, found, err = at.outboxes(ctx)
			return found, err
		})
		return keys, err
	})
}

// ParseEvent reads a message of a sale's outbox. Buyers and operation IDs that are long, more than 96 bytes
// once encoded, have the name by which the sale knows them: '#' and the SHA-256 in unpadded base64url. A text
// that is just that by itself reads the same; the Key tells the two apart.
func ParseEvent(message redis.XMessage) (Event, error) {
	var err error
	text := func(field string) string {
		value, _ := message.Values[field].(string)
		return value
	}
	number := func(field string) int64 {
		value := text(field)
		if value == "" {
			return 0
		}
		n, wrong := strconv.ParseInt(value, 10, 64)
		if wrong != nil {
			err = fmt.Errorf("seckill: event %.100q of a sale: %s: %w", message.ID, field, wrong)
		}
		return n
	}

	event := Event{
		Position: message.ID,
		Kind:     EventKind(text("event")),
		ID:       core.Decode(text("id")),
		Key:      text("id"),
		Buyer:    core.Decode(text("buyer")),
		Quantity: number("quantity"),
		Late:     number("late") == 1,
		Epoch:    number("epoch"),
	}
	if ends := number("ends"); ends != 0 {
		event.Ends = time.UnixMilli(ends)
	}
	if event.Kind == "" {
		err = fmt.Errorf("seckill: message %.100q is not an event of a sale", message.ID)
	}
	if err != nil {
		return Event{}, err
	}
	return event, nil
}
