// Command orders turns the outbox of a sale into orders in a database. Whenever it is killed, it loses no
// order and makes none twice. It is a worker to copy: consumer.go reads the outbox with a consumer group,
// and store.go writes the orders.
//
//	cd examples/orders
//	go run .                                             # a trial: its own Redis, 100 units, 300 buyers
//	REDIS_URL=redis://127.0.0.1:6379 go run . -units 100 # the same on your own Redis
//	REDIS_URL=redis://127.0.0.1:6379 go run . -items tv-55,radio -name worker-1
//	REDIS_URL='redis://10.0.0.1:6379?addr=10.0.0.2:6379' go run . -cluster -units 100 -buckets 8
//
// The third form is the worker alone. Run as many as you like, each with its own name that it keeps over
// restarts. A signal ends a worker when it has handled the messages that it has read. On a cluster a sale
// may be spread over several buckets, each with its own outbox; the worker finds them itself.
//
// The database is SQLite, so the example needs no server, and its orders are one file that sqlite3 opens.
// The driver, modernc.org/sqlite, is SQLite in Go: it needs no C compiler. Both are in a separate module,
// so that your application gets neither. On PostgreSQL the statements of store.go only need other
// placeholders, $1 instead of ?.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/seckill/buckets"
)

// settings holds the command line's settings.
type settings struct {
	db         string
	items      []string
	name       string
	claimAfter time.Duration
	units      int64
	buckets    int
	cluster    bool
	redisURL   string
	prefix     string
}

func main() {
	logging.Disable() // of go-redis: failures come back as errors, and are reported once
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	s, err := parse(os.Args[1:])
	if err == nil {
		err = run(ctx, os.Stdout, s)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

func parse(args []string) (s settings, err error) {
	host, _ := os.Hostname()
	flags := flag.NewFlagSet("orders", flag.ContinueOnError)
	flags.StringVar(&s.db, "db", "orders.db", "the database, an SQLite `file`")
	items := flags.String("items", "ticket", "the items on sale, `a,b,c`")
	flags.StringVar(&s.name, "name", cmp.Or(host, "worker"),
		"the worker's `name` in the group; keep it over restarts")
	flags.DurationVar(&s.claimAfter, "claim-after", time.Minute,
		"idle time after which another worker claims a message")
	flags.Int64Var(&s.units, "units", 0,
		"open the sales with this many units, and run three times as many buyers (100 without REDIS_URL)")
	flags.IntVar(&s.buckets, "buckets", 1,
		"number of `buckets` of the sales, the same for all workers: see core/seckill/buckets")
	flags.BoolVar(&s.cluster, "cluster", false,
		"REDIS_URL names a Redis Cluster; name more of its nodes with ?addr=host:port&addr=...")
	flags.StringVar(&s.prefix, "prefix", "gatehouse-orders",
		"the `prefix` of the sales' keys: see core.WithPrefix")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	s.items, s.redisURL = strings.Split(*items, ","), os.Getenv("REDIS_URL")
	if s.redisURL == "" && s.units == 0 {
		s.units = 100
	}
	return s, nil
}

// run works until ctx ends.
func run(ctx context.Context, out io.Writer, s settings) error {
	rdb, err := connect(s.redisURL, s.cluster)
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	store, err := openStore(ctx, s.db)
	if err != nil {
		return err
	}
	defer store.close()
	// buyers and Redis share a laptop
	gate := core.New(rdb, core.WithPrefix(s.prefix), core.WithDeadline(5*time.Second))
	sale := newSales(gate, s.buckets)

	if s.units > 0 {
		for _, item := range s.items {
			if _, err := sale.Open(ctx, item,
				seckill.Sale{Stock: s.units, Hold: 5 * time.Second}); err != nil {
				return fmt.Errorf("open the sale of %s: %w", item, err)
			}
			go shop(ctx, sale, item, 1, 3*int(s.units))
		}
		go sale.SweepEvery(ctx, time.Second, func() []string { return s.items }) //nolint:errcheck // the interval is one
	}
	go report(ctx, out, store)

	c := &consumer{
		rdb: rdb, sale: sale, store: store, group: "orders", name: s.name, claimAfter: s.claimAfter,
		log: slog.Default(),
	}
	c.run(ctx, s.items)

	last, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	counts, err := store.counts(last)
	if err == nil {
		_, err = fmt.Fprintln(out, "in the end", counts)
	}
	return err
}

// sales is a guard of sales, in one slot each or in several buckets.
type sales interface {
	core.Guard
	Open(ctx context.Context, item string, sale seckill.Sale) (bool, error)
	Confirm(ctx context.Context, a core.Attempt) (core.Decision, error)
	Cancel(ctx context.Context, a core.Attempt) (core.Decision, error)
	Status(ctx context.Context, item string) (seckill.Status, error)
	SweepEvery(ctx context.Context, interval time.Duration, items func() []string) error
	OutboxKeys(ctx context.Context, item string) ([]string, error)
}

// oneSlot is a guard of sales in one slot each.
type oneSlot struct{ *seckill.Guard }

// OutboxKeys returns the key of the one outbox, once the sale is open.
func (g oneSlot) OutboxKeys(ctx context.Context, item string) ([]string, error) {
	_, err := g.Status(ctx, item)
	return []string{g.OutboxKey(item)}, err
}

func newSales(gate *core.Engine, n int) sales {
	if n > 1 {
		return buckets.New(gate, "sale", buckets.Options{Buckets: n})
	}
	return oneSlot{seckill.New(gate, "sale", seckill.Options{})}
}

// report prints how many orders there are, whenever that changes.
func report(ctx context.Context, out io.Writer, s *store) {
	before := ""
	for ctx.Err() == nil {
		if counts, err := s.counts(ctx); err == nil && counts.String() != before {
			before = counts.String()
			_, _ = fmt.Fprintln(out, before)
		}
		wait(ctx, time.Second)
	}
}

// wait waits for the duration, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// connections is how many connections a client may have: one waits at each outbox.
const connections = 200

// connect makes a client for the Redis at redisURL, or for one inside this process when redisURL is empty.
// It sends nothing. The Redis inside has a port of 127.0.0.1: a net.Pipe, which buffers nothing, blocks when
// a pipeline is longer than what the server reads before it replies.
func connect(redisURL string, cluster bool) (redis.UniversalClient, error) {
	if redisURL == "" {
		m := miniredis.NewMiniRedis()
		if err := m.Start(); err != nil { // on a port of 127.0.0.1
			return nil, fmt.Errorf("start a Redis inside the process: %w", err)
		}
		m.ClockTTL(true) // keys expire with time, as in Redis
		return redis.NewClient(&redis.Options{
			Addr:                  m.Addr(),
			ContextTimeoutEnabled: true, PoolSize: connections,
		}), nil
	}
	if cluster {
		options, err := redis.ParseClusterURL(redisURL)
		if err != nil {
			return nil, wrongURL(err)
		}
		options.ContextTimeoutEnabled, options.PoolSize = true, connections
		return redis.NewClusterClient(options), nil
	}
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		return nil, wrongURL(err)
	}
	options.ContextTimeoutEnabled, options.PoolSize = true, connections
	return redis.NewClient(options), nil
}

func wrongURL(err error) error {
	if bad := (*url.Error)(nil); errors.As(err, &bad) {
		err = bad.Err // without the URL, which may contain a password
	}
	return fmt.Errorf("REDIS_URL is not the URL of a Redis (%w): "+
		"write it as redis://user:password@127.0.0.1:6379/0, or leave it out", err)
}
