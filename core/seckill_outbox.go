package core

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// SaleEvent is one thing that has happened to a sale.
type SaleEvent struct {
	// Position is the event's place in the outbox, as Redis names it: "milliseconds-number", by the server's clock, and larger
	// than all before.
	Position string
	// Kind is what has happened.
	Kind SaleEventKind
	// ID is the operation ID: the reservation's, of EventRestocked the restock's own. EventOpened and EventClosed have none.
	ID string
	// Buyer is whose reservation it is, where there is one.
	Buyer string
	// Quantity is in units: of EventOpened the stock, of EventRestocked what was added to it, negative when taken away.
	// EventClosed has none.
	Quantity int64
	// Ends is until when the reservation waits to be confirmed. EventHeld only.
	Ends time.Time
	// Late reports that the reservation had expired before it was confirmed, so that its units are not those that were held.
	// EventSold only.
	Late bool
}

// SaleEventKind is what has happened to a sale.
type SaleEventKind string

// What happens to a sale. A reservation is held first; then it is sold, cancelled or expired. One that has expired may be
// sold after all (SaleEvent.Late), and one that was cancelled or has expired may be held again by the same operation ID.
const (
	// EventOpened: Open has put the item on sale. It is the first event of a sale.
	EventOpened SaleEventKind = "opened"
	// EventHeld: Check has reserved units for a buyer.
	EventHeld SaleEventKind = "held"
	// EventSold: the reservation is confirmed.
	EventSold SaleEventKind = "sold"
	// EventCancelled: the reservation was cancelled, and its units have gone back.
	EventCancelled SaleEventKind = "cancelled"
	// EventExpired: the reservation's time was over, and its units have gone back.
	EventExpired SaleEventKind = "expired"
	// EventRestocked: Restock has changed the stock.
	EventRestocked SaleEventKind = "restocked"
	// EventClosed: Close has closed the sale. A sale that closes at the time it was opened with has no such event.
	EventClosed SaleEventKind = "closed"
)

// Events returns what has happened to a sale after a position, the oldest first, at most count events (1 to 1000). An empty
// position is the beginning; the Position of the last event seen goes on from there. When there is nothing, the result is
// empty, also for an item that never was on sale.
//
// The outbox is written by the scripts that change the sale, so no change is without its event and no event without
// its change, and all readers see the same order. Who remembers a position after handling an event handles each at least
// once; a second time is known by the Position. It is kept as long as the sale.
//
// A failover of Redis can lose the last changes, whole scripts of them: a change is lost with its event, so the sale and its
// outbox agree after that too. But a reader may have seen events that are lost, and new ones may get smaller positions than
// those.
func (g *Seckill) Events(ctx context.Context, item, after string, count int) ([]SaleEvent, error) {
	begun := time.Now()
	events, err := g.events(ctx, item, after, count)
	return events, g.observe(ctx, "events", begun, Decision{Guard: g.name}, err)
}

func (g *Seckill) events(ctx context.Context, item, after string, count int) ([]SaleEvent, error) {
	if item == "" || count < 1 || count > 1000 {
		return nil, fmt.Errorf("%w: events of item %.100q, %d at most: name the item, and ask for 1 to 1000",
			ErrInvalidAttempt, item, count)
	}
	from := "-"
	if after != "" {
		from = "(" + after
	}
	messages, err := query(ctx, g.engine,
		redis.NewXMessageSliceCmd(ctx, "xrange", g.OutboxKey(item), from, "+", "count", count))
	if err != nil {
		return nil, err
	}
	events := make([]SaleEvent, len(messages))
	for i, message := range messages {
		if events[i], err = ParseSaleEvent(message); err != nil {
			return nil, err
		}
	}
	return events, nil
}

// OutboxKey returns the key of a sale's outbox, a Redis stream, for who reads it with a consumer group. It exists from Open
// on; ParseSaleEvent reads its messages. Such a reader should not trim it: Reconcile counts by it.
func (g *Seckill) OutboxKey(item string) string { return g.keys.key(encode(item), "outbox") }

// ParseSaleEvent reads a message of a sale's outbox. Buyers and operation IDs that are long, more than 96 bytes once encoded,
// have the name by which the sale knows them: '#' and the SHA-256 in unpadded base64url.
func ParseSaleEvent(message redis.XMessage) (SaleEvent, error) {
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
			err = fmt.Errorf("core: event %.100q of a sale: %s: %w", message.ID, field, wrong)
		}
		return n
	}

	event := SaleEvent{
		Position: message.ID,
		Kind:     SaleEventKind(text("event")),
		ID:       decode(text("id")),
		Buyer:    decode(text("buyer")),
		Quantity: number("quantity"),
		Late:     number("late") == 1,
	}
	if ends := number("ends"); ends != 0 {
		event.Ends = time.UnixMilli(ends)
	}
	if event.Kind == "" {
		err = fmt.Errorf("core: message %.100q is not an event of a sale", message.ID)
	}
	if err != nil {
		return SaleEvent{}, err
	}
	return event, nil
}
