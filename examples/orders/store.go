package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/gatehouse-go/gatehouse/core/seckill"
)

// An order is a reservation, so its key is what identifies a reservation: the item, the sale's epoch, the
// bucket, and the reservation's key in that bucket. Without the epoch, an ID that comes again in the item's
// next sale would match an existing order. Without the bucket, so would an ID that buyers of two buckets
// use. The key is not the ID, because two IDs may read the same and two keys never do.
//
// The state is the reservation's. A sold order is to be shipped, a held one waits for the payment, and a
// cancelled or expired one is void. ms and seq are the position of the event that set the state.
const schema = `
CREATE TABLE IF NOT EXISTS orders (
	item        TEXT    NOT NULL,
	epoch       INTEGER NOT NULL,
	bucket      INTEGER NOT NULL,
	key         TEXT    NOT NULL,
	reservation TEXT    NOT NULL,
	buyer       TEXT    NOT NULL,
	quantity    INTEGER NOT NULL,
	state       TEXT    NOT NULL,
	ms          INTEGER NOT NULL,
	seq         INTEGER NOT NULL,
	PRIMARY KEY (item, epoch, bucket, key)
);
CREATE TABLE IF NOT EXISTS aside (
	item     TEXT    NOT NULL,
	epoch    INTEGER NOT NULL,
	bucket   INTEGER NOT NULL,
	position TEXT    NOT NULL,
	message  TEXT    NOT NULL,
	reason   TEXT    NOT NULL,
	PRIMARY KEY (item, epoch, bucket, position)
)`

// upsert makes an order or updates it. It may run any number of times, and for the events of a reservation
// in any order, because consumers work side by side: the latest event counts.
//
// But sold stays sold, whatever the positions say. In the sale nothing comes after it, and after a failover
// of Redis new events may have smaller positions than the lost ones.
const upsert = `
INSERT INTO orders (item, epoch, bucket, key, reservation, buyer, quantity, state, ms, seq)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (item, epoch, bucket, key) DO UPDATE SET
	buyer = excluded.buyer, quantity = excluded.quantity, state = excluded.state,
	ms = excluded.ms, seq = excluded.seq
WHERE orders.state <> 'sold'
	AND (excluded.state = 'sold' OR (excluded.ms, excluded.seq) > (orders.ms, orders.seq))`

const putAside = `
INSERT INTO aside (item, epoch, bucket, position, message, reason) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (item, epoch, bucket, position) DO NOTHING`

// store is the database with the orders.
type store struct{ db *sql.DB }

func openStore(ctx context.Context, file string) (*store, error) {
	db, err := sql.Open("sqlite", "file:"+url.PathEscape(file)+"?"+url.Values{
		// A transaction takes the write lock when it begins; otherwise two of them can block each other.
		"_txlock": {"immediate"},
		// A transaction that finds the database locked waits. Readers do not block writers. A commit is on
		// the disk.
		"_pragma": {"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)"},
	}.Encode())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // SQLite has one writer at a time
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return nil, errors.Join(fmt.Errorf("open the database %s: %w", file, err), db.Close())
	}
	return &store{db}, nil
}

func (s *store) close() { _ = s.db.Close() } // what is committed is on the disk

// write writes the messages of one outbox, from a sale with this epoch: all of them or nothing. A message
// that is not an event of an order is set aside for a human and delays no other.
func (s *store) write(
	ctx context.Context, o outbox, epoch int64, messages []redis.XMessage, log *slog.Logger,
) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	for _, m := range messages {
		e, wrong := parseEvent(m, epoch)
		switch {
		case wrong != nil:
			log.Error("message set aside", "outbox", o.key, "position", m.ID, "err", wrong)
			_, err = tx.ExecContext(ctx, putAside, o.item, epoch, o.bucket, m.ID, values(m), wrong.Error())
		case e.state != "":
			_, err = tx.ExecContext(ctx, upsert,
				o.item, epoch, o.bucket, e.key, e.reservation, e.buyer, e.quantity, e.state, e.ms, e.seq)
		}
		if err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

func values(m redis.XMessage) string {
	text, _ := json.Marshal(m.Values) // a map of strings does not fail
	return string(text)
}

// event is a message about an order.
type event struct {
	key, reservation, buyer string
	quantity                int64
	state                   string // empty: the event concerns the sale, not an order
	ms, seq                 int64
}

// parseEvent reads a message of the outbox of a sale with this epoch.
func parseEvent(m redis.XMessage, epoch int64) (e event, err error) {
	parsed, err := seckill.ParseEvent(m)
	if err != nil {
		return e, err
	}
	switch parsed.Kind {
	case seckill.EventHeld, seckill.EventSold, seckill.EventCancelled, seckill.EventExpired:
	case seckill.EventOpened:
		if parsed.Epoch != epoch { // Redis has lost the sale, but not its outbox
			err = fmt.Errorf("another sale, %d, begins in the outbox of %d: later orders may belong to either",
				parsed.Epoch, epoch)
		}
		return e, err
	case seckill.EventRestocked, seckill.EventClosed, seckill.EventMoved, seckill.EventWithdrawn:
		return e, nil
	default:
		return e, fmt.Errorf("unknown event %.100q", parsed.Kind)
	}
	if parsed.ID == "" || parsed.Quantity < 1 {
		return e, fmt.Errorf("invalid event: %d units of reservation %.100q", parsed.Quantity, parsed.ID)
	}
	e = event{
		key: parsed.Key, reservation: parsed.ID, buyer: parsed.Buyer, quantity: parsed.Quantity,
		state: string(parsed.Kind),
	}
	ms, seq, _ := strings.Cut(parsed.Position, "-")
	if e.ms, err = strconv.ParseInt(ms, 10, 64); err == nil {
		e.seq, err = strconv.ParseInt(seq, 10, 64)
	}
	return e, err
}

// counts holds the number of orders by state, and of messages set aside.
type counts struct{ held, sold, cancelled, expired, aside int }

func (c counts) String() string {
	return fmt.Sprintf("orders: %d to ship, %d wait for the payment, %d void; messages aside: %d",
		c.sold, c.held, c.cancelled+c.expired, c.aside)
}

func (s *store) counts(ctx context.Context) (c counts, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT
		count(*) FILTER (WHERE state = 'held'), count(*) FILTER (WHERE state = 'sold'),
		count(*) FILTER (WHERE state = 'cancelled'), count(*) FILTER (WHERE state = 'expired'),
		(SELECT count(*) FROM aside) FROM orders`).Scan(&c.held, &c.sold, &c.cancelled, &c.expired, &c.aside)
	return c, err
}
