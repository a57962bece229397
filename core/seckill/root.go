package seckill

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/lua"
)

// The root of a sale of several buckets is at the key at which a sale of one bucket has its hash. It holds
// the number of buckets and their epoch, which identifies the opening of the sale and is part of their keys.
// A process that remembers the buckets of a sale that was lost and opened again finds nothing there, and asks
// the root. Nothing else about buckets can be out of date.

var (
	seckillBeginScript = script.New("seckill_begin", lua.Source("seckill/begin"), script.Idempotent)
	seckillRootScript  = script.New("seckill_root", lua.Source("seckill/root"), script.Idempotent)
)

const (
	// placesKept is the number of items whose buckets a process remembers.
	placesKept = 1 << 12
	// placeFor is how long a process remembers them before it asks the root again, in the background. So a
	// process may sell from buckets whose root is lost for this long.
	placeFor = time.Second
)

// stockOf returns the stock of an item as far as this process knows: at the item's own keys, unless it
// remembers buckets. It remembers nothing of a sale of one bucket.
func (g *Guard) stockOf(item string) stock {
	known, ok := g.places.Last(item)
	if !ok {
		return g.single(item)
	}
	now := g.Engine().Now()
	if _, fresh := g.places.Find(item, now); !fresh && known.askDue(now) {
		// Until the root has answered, and without an answer, the sale goes on as before.
		g.Later(func(ctx context.Context) { _, _ = g.find(ctx, item) })
	}
	return known
}

// find asks the root for the stock of an item. An item that is not on sale, or not yet, has one bucket.
func (g *Guard) find(ctx context.Context, item string) (stock, error) {
	at, _, err := g.askRoot(ctx, g.Engine().RunWithin, item, "", "")
	return at, err
}

// openedBy tells the root that all buckets of the stock exist, and reports whether this is the first time.
func (g *Guard) openedBy(ctx context.Context, at *spread) (first bool, err error) {
	found, first, err := g.askRoot(ctx, g.runYes, at.item, at.epoch, "")
	if err == nil && !found.same(at) {
		err = errLostAtOpening
	}
	return first, err
}

// askRoot asks the root for the stock of an item. If the stock has the given epoch, the root becomes ready
// and its TTL is renewed, from now or from the closing; marked reports that the root was not ready before.
func (g *Guard) askRoot(
	ctx context.Context, run runScript, item, epoch, closing string,
) (at stock, marked bool, err error) {
	asked := g.places.Ask(item, g.Engine().Now())
	root := g.single(item)
	value, err := run(ctx, g.Engine().SettleTimeout(), seckillRootScript, root.keys()[:2],
		epoch, closing, root.now())
	if err != nil {
		return root, false, err
	}
	r := script.ReadReply(value, 5, 5)
	state, buckets, found, spare := r.Text(), r.Number(), r.Text(), r.Duration(time.Millisecond)
	marked = r.Flag()
	if r.Err != nil {
		return root, false, r.Err
	}
	known, ok := g.places.Last(item)
	if state != "ready" {
		if ok {
			g.places.Drop(item)
		}
		return root, marked, nil
	}
	if buckets < 2 || buckets > maxBuckets || found == "" {
		return root, false, fmt.Errorf("sale %.100q has %d buckets: want 2 to %d", item, buckets, maxBuckets)
	}
	if !ok || known.epoch != found || len(known.buckets) != int(buckets) {
		known = g.newSpread(item, int(buckets), found)
	}
	known.keepBefore(asked.At.Add(spare))
	g.places.Hear(asked, known, placeFor)
	return known, marked, nil
}

var errLostAtOpening = errors.New("the sale was lost while it was being opened: open it again")

// openStock opens a sale where it belongs.
func (g *Guard) openStock(ctx context.Context, item string, sale Sale) (opened bool, err error) {
	if sale.Buckets > 1 {
		return g.openSpread(ctx, item, sale)
	}
	reply, err := g.single(item).open(ctx, sale.Stock, termsOf(sale, g.options.Keep))
	if reply == 2 { // several buckets, which may wait for somebody to open them
		return g.openSpread(ctx, item, sale)
	}
	return reply == 1, err
}

// openSpread opens a sale of several buckets: first the root, then each bucket with its share; then the root
// becomes ready. Each step can be repeated by any process, so one process may begin and another one finish.
func (g *Guard) openSpread(ctx context.Context, item string, sale Sale) (opened bool, err error) {
	begun, err := g.begin(ctx, item, sale)
	if err != nil || begun.at == nil {
		return false, err
	}
	buckets := int64(len(begun.at.buckets))
	err = begun.at.each(func(n int, b *bucket) error {
		share := begun.stock / buckets
		if int64(n) < begun.stock%buckets {
			share++
		}
		_, err := b.open(ctx, share, begun.terms)
		return err
	})
	if err != nil {
		return false, err
	}
	return g.openedBy(ctx, begun.at)
}

// opening is a sale of several buckets that is being opened, with the terms of the process that began.
type opening struct {
	at    *spread // nil: all buckets are open
	stock int64
	terms terms
}

// begin opens the root, unless that has been done.
func (g *Guard) begin(ctx context.Context, item string, sale Sale) (begun opening, err error) {
	root, own := g.single(item), termsOf(sale, g.options.Keep)
	keep := g.options.Keep.Milliseconds()
	value, err := g.runYes(ctx, g.Engine().SettleTimeout(), seckillBeginScript, root.keys(),
		sale.Buckets, sale.Stock, own.opens, own.closes, own.perBuyer, own.hold, keep+keep/10, root.now())
	if err != nil {
		return begun, err
	}
	r := script.ReadReply(value, 9, 9)
	state, buckets, epoch, total := r.Text(), r.Number(), r.Text(), r.Text()
	begun.terms = terms{opens: r.Text(), closes: r.Text(), perBuyer: r.Text(), hold: r.Text(), keep: r.Text()}
	var wrong error
	begun.stock, wrong = strconv.ParseInt(total, 10, 64)
	switch {
	case r.Err != nil:
		return begun, r.Err
	case state == "remains":
		return begun, fmt.Errorf("%w (%.100q)", ErrRemains, item)
	case state == "none": // the caller has seen that an opening had begun
		return begun, errLostAtOpening
	case state != "opening":
		return begun, nil
	case wrong != nil || buckets < 2 || buckets > maxBuckets:
		return begun, fmt.Errorf("sale %.100q has %d buckets and a stock of %.100q: want 2 to %d",
			item, buckets, total, maxBuckets)
	}
	begun.at = g.newSpread(item, int(buckets), epoch)
	return begun, nil
}
