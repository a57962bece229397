package seckill

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
)

// Event is one change of a sale.
type Event struct {
	// Position is the event's ID in the stream: "milliseconds-number", by the server's clock, and larger
	// than those of earlier events.
	Position string
	// Kind is the kind of change.
	Kind EventKind
	// ID is the operation ID of the reservation, or of the restock for EventRestocked. It is empty for
	// EventOpened and EventClosed.
	ID string
	// Key is the ID as the sale stores it: ASCII letters, digits and punctuation, at most 96 bytes.
	// Different IDs have different Keys, while ID may be the short form of a long one: see [ParseEvent]. A
	// consumer should make its unique key from the item, the sale's Epoch, the Bucket and Key, because a sale
	// that is opened again may have the same IDs, and so may buyers in different buckets.
	Key string
	// Buyer is the buyer of the reservation. It is empty for events that concern no reservation.
	Buyer string
	// Quantity is a number of units: for EventOpened the stock, for EventRestocked the units that were
	// added, or, if negative, taken away. It is 0 for EventClosed.
	Quantity int64
	// Ends is when the hold ends unless it is confirmed. EventHeld only.
	Ends time.Time
	// Late reports that the reservation had expired before it was confirmed, so its units are not those
	// that were held. EventSold only.
	Late bool
	// Epoch is the epoch of the sale: see [Status]. Only EventOpened has it, the first event of each
	// outbox. The events that follow belong to the same sale, until an EventOpened with another Epoch.
	Epoch int64
	// Bucket is the number of the event's bucket in a sale of package buckets. It is 0 in others.
	Bucket int
}

// EventKind is a kind of change of a sale.
type EventKind string

// The kinds of events. A reservation is first held, then sold, cancelled or expired. A reservation that was
// sold while its answer was lost is withdrawn and cancelled at once: see core.Revoke. An expired
// reservation may still be sold ([Event].Late). A cancelled or expired one may be held again under the same
// operation ID.
const (
	// EventOpened: Open put the item on sale. It is the first event of a sale.
	EventOpened EventKind = "opened"
	// EventHeld: Check reserved units for a buyer.
	EventHeld EventKind = "held"
	// EventSold: the reservation was confirmed.
	EventSold EventKind = "sold"
	// EventWithdrawn: the reservation that was sold is held again, and is cancelled by the next event, at the
	// same moment. Its buyer did not hear of the sale.
	EventWithdrawn EventKind = "withdrawn"
	// EventCancelled: the reservation was cancelled, and its units returned to the stock.
	EventCancelled EventKind = "cancelled"
	// EventExpired: the hold ended, and its units returned to the stock.
	EventExpired EventKind = "expired"
	// EventRestocked: Restock changed the stock.
	EventRestocked EventKind = "restocked"
	// EventClosed: Close closed the sale. A sale that closes at its own Closes has no such event.
	EventClosed EventKind = "closed"
	// EventMoved: in a sale of package buckets, units came from another bucket, or, if Quantity is negative,
	// went to one. The sale as a whole did not change, so an order system ignores these events.
	EventMoved EventKind = "moved"
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
// The outbox keeps the events of a buyer's last 16 reservations that were cancelled or have expired (see
// [Guard.Check]), so that nobody can fill the memory. All events of an earlier one are removed together. A
// reader that lags so far behind may have seen EventHeld without the next event. It takes such a
// reservation for expired when Ends has passed. If it is sold after all, it still has its EventSold.
//
// A failover of Redis can lose the last changes. A change is lost together with its event, so the sale and
// its outbox still agree. But a reader may have seen events that are lost, and new events may get smaller
// positions than those.
func (g *Guard) Events(ctx context.Context, item, after string, count int) ([]Event, error) {
	return kit.Look(ctx, &g.Base, "events", core.Attempt{}, func() ([]Event, error) {
		return g.events(ctx, item, after, count)
	})
}

func (g *Guard) events(ctx context.Context, item, after string, count int) ([]Event, error) {
	if item == "" || count < 1 || count > 1000 {
		return nil, fmt.Errorf("%w: events of item %.100q, %d at most: name the item, and ask for 1 to 1000",
			core.ErrInvalid, item, count)
	}
	return g.stockOf(item).read(ctx, after, count)
}

// OutboxKey returns the key of the outbox of a sale, a Redis stream, for a reader with a consumer group. It
// exists from Open on. [ParseEvent] reads its messages. The reader must not trim the stream, because
// [Guard.Verify] counts it.
func (g *Guard) OutboxKey(item string) string { return g.stockOf(item).key("outbox") }

// ParseEvent reads a message of a sale's outbox. A buyer or operation ID of more than 96 bytes after
// encoding appears in the short form that the sale stores: '#' and the SHA-256 in unpadded base64url. A text
// that has this form by itself looks the same; the Key distinguishes the two. A message that is not an event
// is an error.
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
		ID:       script.Decode(text("id")),
		Key:      text("id"),
		Buyer:    script.Decode(text("buyer")),
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
