package seckill

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
)

// Verification is the result of [Guard.Verify]: the totals of one sale, counted from each of its parts. The
// parts agree unless the keys were changed from outside or data was lost.
type Verification struct {
	// Item is the item on sale.
	Item string `json:"item"`
	// Counters are the counters that the sale keeps while it sells, as [Guard.Status] returns them.
	Counters Status `json:"counters"`
	// Reservations is the sum of the reservations: Held and Sold. Its Stock is that of Counters, because
	// reservations do not determine it, and its Left is the rest of that Stock.
	Reservations Status `json:"reservations"`
	// Outbox is the sum of the events. It is zero with [Options].NoOutbox.
	Outbox Status `json:"outbox"`
	// NoOutbox reports that there is no outbox to compare with.
	NoOutbox bool `json:"no_outbox,omitempty"`
	// Buyers is the number of units of all buyers, held and sold, by the counters that limit each buyer.
	Buyers int64 `json:"buyers"`
	// WrongTimers is the number of held reservations without the timer that ends them, plus the number of
	// timers without a held reservation. A timer that is set to another time counts as both.
	WrongTimers int64 `json:"wrong_timers"`
	// Lost is which parts of the sale do not exist any more: buyers, holds, reservations. See [Guard.Repair].
	Lost []string `json:"lost,omitempty"`
	// Borrowed is the number of units that a bucket of package buckets got from other buckets, minus those it
	// gave them, by the outbox.
	Borrowed int64 `json:"borrowed,omitempty"`
	// Moving reports that the sale changed during every count, so that the parts are of different moments.
	Moving bool `json:"moving,omitempty"`
}

// Consistent reports whether all parts were counted at one moment and agree.
func (r Verification) Consistent() bool { return !r.Moving && len(r.Differences()) == 0 }

// Differences lists where the parts differ, one per line.
func (r Verification) Differences() []string {
	var found []string
	differ := func(what string, got, want int64) {
		if got != want {
			found = append(found, fmt.Sprintf("%s: %d, want %d (%+d)", what, got, want, got-want))
		}
	}
	c := r.Counters
	for _, part := range r.Lost {
		found = append(found, "lost: "+part)
	}
	differ("counters: left + held + sold", c.Left+c.Held+c.Sold, c.Stock)
	differ("reservations: held", r.Reservations.Held, c.Held)
	differ("reservations: sold", r.Reservations.Sold, c.Sold)
	if !r.NoOutbox {
		differ("outbox: stock", r.Outbox.Stock, c.Stock)
		differ("outbox: held", r.Outbox.Held, c.Held)
		differ("outbox: sold", r.Outbox.Sold, c.Sold)
	}
	differ("buyers: held + sold", r.Buyers, c.Held+c.Sold)
	differ("wrong timers", r.WrongTimers, 0)
	return found
}

// String shows the parts side by side, followed by their differences, for an operator.
func (r Verification) String() string {
	verdict := "consistent"
	if r.Moving {
		verdict = "moving: the parts are of different moments; ask again when the sale is quiet"
	} else if !r.Consistent() {
		verdict = "NOT consistent"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "sale %q: %s\n", r.Item, verdict)
	fmt.Fprintf(&b, "%-12s %12s %12s %12s %12s\n", "", "stock", "left", "held", "sold")
	line := func(part string, s Status) {
		fmt.Fprintf(&b, "%-12s %12d %12d %12d %12d\n", part, s.Stock, s.Left, s.Held, s.Sold)
	}
	line("counters", r.Counters)
	line("reservations", r.Reservations)
	if !r.NoOutbox {
		line("outbox", r.Outbox)
	}
	fmt.Fprintf(&b, "buyers have %d\n", r.Buyers)
	for _, difference := range r.Differences() {
		fmt.Fprintf(&b, "- %s\n", difference)
	}
	return b.String()
}

const (
	// verifyTries is the maximum number of counts of a sale that changes.
	verifyTries = 3
	// verifyChunk is about the number of records per call of Verify, so that no call keeps Redis busy for
	// long.
	verifyChunk = 1000
)

// Verify counts the records of a sale and returns the totals of each part. It changes nothing. It reads in
// chunks, so a large sale takes a while: limit the call with ctx.
//
// The count is exact if nothing changed meanwhile. Verify detects changes by the outbox, to which every
// change appends. With NoOutbox it compares only the counters, and misses changes that cancel each other out.
// It counts a sale that changes at most three times, and then reports it as Moving. ErrNoSale means that
// there is no such sale.
func (g *Guard) Verify(ctx context.Context, item string) (Verification, error) {
	return kit.Look(ctx, &g.Base, "verify", core.Attempt{}, func() (v Verification, err error) {
		if item == "" {
			return v, errNoItem
		}
		for range verifyTries {
			if v, err = g.stockOf(item).count(ctx); err != nil || !v.Moving {
				break
			}
		}
		return v, err
	})
}

// saleCount counts one sale. After an error nothing more is counted.
type saleCount struct {
	Verification
	ctx   context.Context // of the one call
	stock *stock
	err   error
}

// saleMark is the state of a sale. If two marks are equal, nothing changed in between.
type saleMark struct {
	status Status
	last   string // event
}

func (c *saleCount) mark() (m saleMark) {
	var now state
	if c.err == nil {
		now, c.err = c.stock.look(c.ctx)
	}
	m.status = now.Status
	c.Counters = m.status
	if !c.NoOutbox {
		newest := redis.NewXMessageSliceCmd(c.ctx, "xrevrange", c.key("outbox"), "+", "-", "count", 1)
		for _, message := range try(c, newest) {
			m.last = message.ID
		}
	}
	return m
}

// lost looks for parts that do not exist.
func (c *saleCount) lost() {
	parts := []string{"buyers", "holds", "reservations"}
	there, err := c.stock.exists(c.ctx, parts...)
	if c.err == nil {
		c.err = err
	}
	for _, part := range parts {
		if c.err == nil && !there[part] {
			c.Lost = append(c.Lost, part)
		}
	}
}

func (c *saleCount) reservations() {
	var held, timed int64
	c.scan("reservations", func(pairs []string) {
		var ids []any
		var ends []float64
		for i := 0; i < len(pairs); i += 2 {
			id, record := pairs[i], pairs[i+1]
			if strings.Contains(id, "|") { // none of a reservation
				continue
			}
			fields := strings.Fields(record) // state buyer quantity end event call ...
			if len(fields) < 4 {
				c.fail("reservation", id, record)
				return
			}
			quantity, end := c.number("reservation", id, fields[2]), c.number("reservation", id, fields[3])
			switch fields[0] {
			case "held":
				c.Reservations.Held += quantity
				ids, ends = append(ids, id), append(ends, float64(end))
			case "sold":
				c.Reservations.Sold += quantity
			}
		}
		if len(ids) == 0 {
			return
		}
		held += int64(len(ids))
		words := append([]any{"zmscore", c.key("holds")}, ids...)
		for i, timer := range try(c, redis.NewFloatSliceCmd(c.ctx, words...)) {
			if timer == ends[i] {
				timed++
			}
		}
	})
	timers := max(try(c, redis.NewIntCmd(c.ctx, "zcard", c.key("holds")))-1, 0) // all but '|'
	c.WrongTimers = held - timed + timers - timed
	c.Reservations.Stock = c.Counters.Stock
	c.Reservations.Left = c.Counters.Stock - c.Reservations.Held - c.Reservations.Sold
}

func (c *saleCount) buyers() {
	c.scan("buyers", func(pairs []string) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] != "|" {
				c.Buyers += c.number("buyer", pairs[i], pairs[i+1])
			}
		}
	})
}

// scan calls f with a hash, some fields and values at a time. HSCAN returns each field at least once. So if
// it returned as many as the hash has, it returned each field once. Otherwise the hash changed.
func (c *saleCount) scan(key string, f func(pairs []string)) {
	cursor, seen := "0", int64(0)
	for c.err == nil {
		page := redis.NewCmd(c.ctx, "hscan", c.key(key), cursor, "count", verifyChunk)
		reply := script.ReadReply(try(c, page), 2, 2)
		cursor = reply.Text()
		values := script.ReadValue[[]any](reply)
		if c.err == nil {
			c.err = reply.Err
		}
		pairs := make([]string, 0, len(values))
		for _, value := range values {
			text, _ := value.(string)
			pairs = append(pairs, text)
		}
		seen += int64(len(pairs) / 2)
		f(pairs)
		if cursor == "0" {
			break
		}
	}
	if size := try(c, redis.NewIntCmd(c.ctx, "hlen", c.key(key))); size != seen {
		c.Moving = true
	}
}

func (c *saleCount) outbox() {
	if c.NoOutbox {
		return
	}
	o := &c.Outbox
	after := ""
	for c.err == nil {
		var events []Event
		events, c.err = c.stock.read(c.ctx, after, verifyChunk)
		for _, e := range events {
			switch e.Kind {
			case EventOpened, EventRestocked:
				o.Stock += e.Quantity
			case EventMoved:
				o.Stock += e.Quantity
				c.Borrowed += e.Quantity
			case EventHeld:
				o.Held += e.Quantity
			case EventSold:
				o.Sold += e.Quantity
				if !e.Late {
					o.Held -= e.Quantity
				}
			case EventWithdrawn:
				o.Sold -= e.Quantity
				o.Held += e.Quantity
			case EventCancelled, EventExpired:
				o.Held -= e.Quantity
			case EventClosed:
			}
			after = e.Position
		}
		if len(events) < verifyChunk {
			break
		}
	}
	o.Left = o.Stock - o.Held - o.Sold
}

func (c *saleCount) key(field string) string { return c.stock.key(field) }

func (c *saleCount) number(what, name, text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		c.fail(what, name, text)
	}
	return n
}

func (c *saleCount) fail(what, name, text string) {
	if c.err == nil {
		c.err = fmt.Errorf("%s %.100q of %.100q: unexpected %.100q", what, name, c.stock.item, text)
	}
}

// try runs a command that only reads, unless there was an error before.
func try[T any](c *saleCount, cmd interface {
	redis.Cmder
	Result() (T, error)
}) (value T) {
	if c.err == nil {
		value, c.err = script.Query(c.ctx, c.stock.g.Engine().Runner, cmd)
	}
	return value
}
