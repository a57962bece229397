package buckets

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/lua"
)

// The root of a sale is at the key at which package seckill has its hash. It holds the number of buckets and
// their epoch, which identifies the opening of the sale and is part of their keys. A process that remembers
// the buckets of a sale that was lost and opened again finds nothing there, and asks the root. Nothing else
// about buckets can be out of date.

var (
	beginScript = script.New("buckets_begin", lua.Source("buckets/begin"), script.Idempotent)
	rootScript  = script.New("buckets_root", lua.Source("buckets/root"), script.Idempotent)
)

const (
	// placesKept is the number of items whose buckets a process remembers.
	placesKept = 1 << 12
	// placeFor is how long a process remembers them before it asks the root again, in the background. So a
	// process may sell from buckets whose root is lost for this long.
	placeFor = time.Second
)

// now returns the last argument of the scripts: see [core.Engine.ScriptNow].
func (g *Guard) now() any { return g.Engine().ScriptNow(time.Millisecond) }

// rootKeys returns the keys of the root, of its copy, and those that only a sale of package seckill has.
func (g *Guard) rootKeys(item string) []string { return g.parts.Keys(script.Encode(item)) }

// placeOf returns the buckets of an item as far as this process knows, or nil.
func (g *Guard) placeOf(item string) *spread {
	known, ok := g.places.Last(item)
	if !ok {
		return nil
	}
	now := g.Engine().Now()
	if _, fresh := g.places.Find(item, now); !fresh && known.askDue(now) {
		// Until the root has answered, and without an answer, the sale goes on as before.
		g.Later(func(ctx context.Context) { _, _ = g.find(ctx, item) })
	}
	return known
}

// find asks the root for the buckets of an item. It returns nil if the item is not on sale, or not yet.
func (g *Guard) find(ctx context.Context, item string) (*spread, error) {
	at, _, err := g.askRoot(ctx, item, "", "")
	return at, err
}

// locate calls f with the buckets of an item, and reports whether f found anything. If f finds nothing there,
// and the root says that the sale is elsewhere, locate calls f again.
func (g *Guard) locate(
	ctx context.Context, item string, f func(at *spread) (found bool, err error),
) (found bool, err error) {
	if item == "" {
		return false, errNoItem
	}
	at := g.placeOf(item)
	for {
		if at != nil {
			if found, err = f(at); err != nil || found {
				return found, err
			}
		}
		now, err := g.find(ctx, item)
		if err != nil || now == nil || now.same(at) {
			return false, err
		}
		at = now
	}
}

// ofSale is locate for a sale that must exist: it returns ErrNoSale if f finds nothing.
func (g *Guard) ofSale(ctx context.Context, item string, f func(at *spread) (found bool, err error)) error {
	found, err := g.locate(ctx, item, f)
	if err == nil && !found {
		err = seckill.ErrNoSale
	}
	return err
}

// What becomes of a sale whose buckets all have the epoch.
const (
	closes   = "close"
	restores = "restore"
)

// askRoot asks the root for the buckets of an item. If they have the given epoch, the root becomes ready and
// its TTL is renewed, from now or from the closing; marked reports that the root was not ready before. Or the
// root is closed or restored; marked reports that this call did.
//
// Who renews the root has renewed the buckets: a root that outlives them is a sale that can neither be bought
// from nor opened again.
func (g *Guard) askRoot(
	ctx context.Context, item, epoch, change string,
) (at *spread, marked bool, err error) {
	asked := g.places.Ask(item, g.Engine().Now())
	var lasts func(reply any) bool
	if epoch != "" {
		lasts = saysState
	}
	value, err := g.parts.Run(ctx, lasts, rootScript, g.rootKeys(item)[:2], epoch, change, g.now())
	if err != nil {
		return nil, false, err
	}
	r := script.ReadReply(value, 5, 5)
	state, buckets, found, spare := r.Text(), r.Number(), r.Text(), r.Duration(time.Millisecond)
	marked = r.Flag()
	if r.Err != nil {
		return nil, false, r.Err
	}
	known, ok := g.places.Last(item)
	if state != "ready" {
		if ok {
			g.places.Drop(item)
		}
		return nil, marked, nil
	}
	if buckets < 2 || buckets > maxBuckets || found == "" {
		return nil, false, fmt.Errorf("sale %.100q has %d buckets: want 2 to %d", item, buckets, maxBuckets)
	}
	if !ok || known.epoch != found || len(known.tags) != int(buckets) {
		known = g.newSpread(item, int(buckets), found)
	}
	known.keepBefore(asked.At.Add(spare))
	g.places.Hear(asked, known, placeFor)
	return known, marked, nil
}

var errLostAtOpening = errors.New("the sale was lost while it was being opened: open it again")

// open opens a sale: first the root, then each bucket with its share; then the root becomes ready. Each step
// can be repeated by any process, so one process may begin and another one finish.
func (g *Guard) open(ctx context.Context, item string, sale seckill.Sale) (opened bool, err error) {
	if item == "" {
		return false, errNoItem
	}
	terms, err := g.parts.Terms(sale)
	if err != nil {
		return false, err
	}
	begun, err := g.begin(ctx, item, terms)
	if err != nil || begun.at == nil {
		return false, err
	}
	buckets := int64(len(begun.at.tags))
	err = begun.at.each(func(n int, tag string) error {
		share := begun.stock / buckets
		if int64(n) < begun.stock%buckets {
			share++
		}
		opened, err := g.parts.Open(ctx, tag, append([]any{share}, begun.terms...), begun.at.epoch)
		if err == nil && !opened { // by a process that died before it was done, maybe long ago
			_, err = begun.at.run(ctx, nil, n, keepScript, "", "")
		}
		return err
	})
	if err != nil {
		return false, err
	}
	found, first, err := g.askRoot(ctx, item, begun.at.epoch, "")
	if err == nil && !begun.at.same(found) {
		err = errLostAtOpening
	}
	return first, err
}

// opening is a sale that is being opened, with the terms of the process that began.
type opening struct {
	at    *spread // nil: all buckets are open
	stock int64
	terms []any // but the stock
}

// begin opens the root, unless that has been done.
func (g *Guard) begin(ctx context.Context, item string, terms []int64) (begun opening, err error) {
	last := len(terms) - 1 // keep: a tenth more than the sale needs, see seckill.Options
	args := []any{g.options.Buckets}
	for _, term := range terms[:last] {
		args = append(args, term)
	}
	args = append(args, terms[last]+terms[last]/10, g.now())
	value, err := g.parts.Run(ctx, saysState, beginScript, g.rootKeys(item), args...)
	if err != nil {
		return begun, err
	}
	r := script.ReadReply(value, 9, 9)
	state, buckets, epoch, total := r.Text(), r.Number(), r.Text(), r.Text()
	for range last {
		begun.terms = append(begun.terms, r.Text())
	}
	var wrong error
	begun.stock, wrong = strconv.ParseInt(total, 10, 64)
	switch {
	case r.Err != nil:
		return begun, r.Err
	case state == "remains":
		return begun, fmt.Errorf("%w (%.100q)", seckill.ErrRemains, item)
	case state != "opening":
		return begun, nil
	case wrong != nil || buckets < 2 || buckets > maxBuckets:
		return begun, fmt.Errorf("sale %.100q has %d buckets and a stock of %.100q: want 2 to %d",
			item, buckets, total, maxBuckets)
	}
	begun.at = g.newSpread(item, int(buckets), epoch)
	return begun, nil
}

// whereabouts is find, also where the root is lost or not ready: then its copy says where the buckets are.
func (g *Guard) whereabouts(ctx context.Context, item string) (*spread, error) {
	found := map[string]string{}
	keys := g.rootKeys(item)
	for _, key := range []string{keys[1], keys[0]} { // the copy, and the root, which is right where both are
		fields, err := script.Query(ctx, g.Engine().Runner,
			redis.NewSliceCmd(ctx, "hmget", key, "buckets", "epoch", "sale"))
		if err != nil {
			return nil, err
		}
		for i, name := range []string{"buckets", "epoch", "sale"} {
			if text, ok := fields[i].(string); ok {
				found[name] = text
			}
		}
	}
	buckets, err := strconv.Atoi(found["buckets"])
	if err != nil || buckets < 2 || buckets > maxBuckets || found["epoch"] == "" || found["sale"] == "" {
		return nil, nil //nolint:nilerr,nilnil // there is no such sale
	}
	return g.newSpread(item, buckets, found["epoch"]), nil
}

// saysState reports whether the reply of buckets_begin and buckets_root must last.
func saysState(reply any) bool {
	words, _ := reply.([]any)
	return len(words) > 0 && (words[0] == "opening" || words[0] == "ready")
}
