package seckill

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/bounded"
	"github.com/gatehouse-go/gatehouse/internal/schedule"
	"github.com/gatehouse-go/gatehouse/lua"
)

// A sale of several buckets is spread over as many slots of a Redis Cluster. Each bucket is a complete small sale with keys
// and a stock of its own, run by the same scripts. Buyers stay: a buyer's bucket is the hash of his name, so what one buyer may
// have is counted in one place and exactly. The stock moves: see seckill_loans.go.
//
// The root, at the key that a sale of one bucket has as its sale, says how many buckets there are and which opening of the
// item they belong to, its epoch. The epoch is part of the buckets' keys. So a process that remembers buckets of a sale that was
// lost and opened again finds nothing there, asks the root and learns better; nothing else about buckets can be out of date.

var (
	seckillBeginScript = core.NewScript("seckill_begin", lua.SeckillBegin, core.Idempotent)
	seckillRootScript  = core.NewScript("seckill_root", lua.SeckillRoot, core.Idempotent)
	seckillFindScript  = core.NewScript("seckill_find", lua.SeckillFind, core.Idempotent)
	seckillKeepScript  = core.NewScript("seckill_keep", lua.SeckillKeep, core.Idempotent)
)

const (
	// maxBuckets is how many buckets a sale may have.
	maxBuckets = 64
	// placesKept is of how many items a process remembers the buckets.
	placesKept = 1 << 12
	// placeFor is how long it does so before it asks the root again, in the background. It is how long a process may go on selling
	// from buckets whose root is lost.
	placeFor = time.Second
)

// place is where a sale is.
type place struct {
	item    string
	buckets int    // 1: all of it is at the item's own keys
	epoch   string // of a sale of several buckets
	tags    []string
	// keepAt is when the next change of a bucket has to let all of them live on.
	keepAt time.Time
}

// same reports whether two places are one.
func (at place) same(other place) bool { return at.buckets == other.buckets && at.epoch == other.epoch }

// home is the bucket of a buyer. It is the same in all processes and for all time.
func (at place) home(buyer string) int {
	if at.buckets == 1 {
		return 0
	}
	sum := sha256.Sum256([]byte(buyer))
	return int(binary.BigEndian.Uint64(sum[:8]) % uint64(at.buckets))
}

// each calls f for all buckets at once, and returns the first bucket's error that has one.
func (at place) each(f func(bucket int) error) error {
	errs := make([]error, at.buckets)
	var all sync.WaitGroup
	for i := 1; i < at.buckets; i++ {
		all.Go(func() { errs[i] = f(i) })
	}
	errs[0] = f(0)
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// keysAt are the keys of one bucket, in the order of the scripts' KEYS.
func (g *Guard) keysAt(at place, bucket int) []string {
	keys := []string{
		g.keyAt(at, bucket, "sale"), g.keyAt(at, bucket, "buyers"), g.keyAt(at, bucket, "holds"), g.keyAt(at, bucket, "reservations"),
	}
	if !g.options.NoOutbox {
		keys = append(keys, g.keyAt(at, bucket, "outbox"))
	}
	return keys
}

func (g *Guard) keyAt(at place, bucket int, field string) string {
	if at.epoch == "" {
		return g.Key(core.Encode(at.item), field)
	}
	return g.Key(at.tags[bucket], field, at.epoch)
}

// bucketTags are the tags of an item's buckets. The first is the item's own, where the root is. The others have a number to it, and one
// more where that is needed for the slots of all of them to be spread evenly: a cluster gives its masters ranges of slots, and of
// a few slots at random one master easily has half. They are the same in all processes and for all time.
func bucketTags(item string, buckets int) []string {
	tags := make([]string, buckets)
	tags[0] = core.Encode(item)
	part := func(bucket int) int { return slot(tags[bucket]) * buckets / slots }
	for i := 1; i < buckets; i++ {
		tags[i] = core.JoinTag(tags[0], strconv.Itoa(i))
		for more := 1; part(i) != (part(0)+i)%buckets; more++ {
			tags[i] = core.JoinTag(tags[0], strconv.Itoa(i), strconv.Itoa(more))
		}
	}
	return tags
}

// slots is how many a Redis Cluster has.
const slots = 1 << 14

// slot is the slot of a tag: CRC16 as the Redis Cluster specification has it, that of XMODEM.
func slot(tag string) int {
	var crc uint16
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % slots
}

// places is where this process remembers sales of several buckets to be. Of the others nothing is remembered.
type places struct {
	items *bounded.Map[string, knownPlace]
}

type knownPlace struct {
	place
	asked time.Time
}

func newPlaces() *places { return &places{bounded.New[string, knownPlace](placesKept)} }

// get returns where an item is sold, if that is known, and whether it is time to ask again. Of several callers one is told so.
func (p *places) get(item string, now time.Time) (at place, known, ask bool) {
	s := p.items.Of(item)
	s.Lock()
	defer s.Unlock()
	k, known := s.Get(item)
	if !known {
		return at, false, false
	}
	if age := now.Sub(k.asked); age < 0 || age >= placeFor {
		k.asked, ask = now, true
		s.Add(k.item, k)
	}
	return k.place, true, ask
}

// set remembers a place that was asked for at the given moment; one of a single bucket is forgotten. The item may be a piece of a
// long text, which would be kept with it, hence the clone.
func (p *places) set(at place, asked time.Time) {
	s := p.items.Of(at.item)
	s.Lock()
	defer s.Unlock()
	if at.buckets == 1 {
		s.Remove(at.item)
		return
	}
	at.item = strings.Clone(at.item)
	s.Add(at.item, knownPlace{at, asked})
}

// place returns where an item is sold as far as this process knows: at the item's own keys, unless it has learned better.
func (g *Guard) place(item string) place {
	at, known, ask := g.places.get(item, g.Engine().Now())
	if !known {
		return place{item: item, buckets: 1}
	}
	if ask {
		g.Engine().Later(func(ctx context.Context) { _, _ = g.find(ctx, item) }) // until then, and without an answer, as before
	}
	return at
}

// find asks the root where an item is sold. One that is not on sale, or not yet, has one bucket.
func (g *Guard) find(ctx context.Context, item string) (place, error) {
	at, _, err := g.root(ctx, place{item: item}, false)
	return at, err
}

// root asks the root where an item is sold. Where that is the place of the given epoch, it is ready from then on, and may close;
// marked reports that it was not ready before.
func (g *Guard) root(ctx context.Context, of place, closes bool) (at place, marked bool, err error) {
	asked := g.Engine().Now()
	at = place{item: of.item, buckets: 1}
	closing := ""
	if closes {
		closing = "1"
	}
	run := g.Engine().RunWithin
	if of.epoch != "" { // what it writes somebody relies on
		run = g.runYes
	}
	value, err := run(ctx, g.Engine().SettleTimeout(), seckillRootScript, g.keysAt(at, 0)[:1],
		of.epoch, closing, g.Engine().ScriptNow(time.Millisecond))
	if err != nil {
		return at, false, err
	}
	r := core.ReadReply(value, 5, 5)
	state, buckets, epoch, spare := r.Text(), r.Number(), r.Text(), r.Duration(time.Millisecond)
	marked = r.Flag()
	if r.Err == nil && state == "ready" && (buckets < 2 || buckets > maxBuckets || epoch == "") {
		r.Err = fmt.Errorf("sale %.100q has %d buckets: want 2 to %d", of.item, buckets, maxBuckets)
	}
	if r.Err != nil {
		return at, false, r.Err
	}
	if state == "ready" {
		at.buckets, at.epoch, at.keepAt = int(buckets), epoch, asked.Add(spare)
		if before, _, _ := g.places.get(of.item, asked); before.same(at) {
			at.tags = before.tags
		} else {
			at.tags = bucketTags(of.item, at.buckets)
		}
	}
	g.places.set(at, asked)
	return at, marked, nil
}

// locate calls f with where an item is sold. f reports whether nothing is there: then it is called again if the root says that the sale is
// elsewhere.
func (g *Guard) locate(ctx context.Context, item string, f func(at place) (missing bool, err error)) error {
	if item == "" {
		return errNoItem
	}
	at := g.place(item)
	for {
		missing, err := f(at)
		if err != nil || !missing {
			return err
		}
		found, err := g.find(ctx, item)
		if err != nil || found.same(at) {
			return err
		}
		at = found
	}
}

// keepDue reports whether a change of a bucket, now, has to let all of them live on. Of several callers one is told so.
func (p *places) keepDue(at place, now time.Time) bool {
	if at.buckets == 1 || now.Before(at.keepAt) {
		return false
	}
	s := p.items.Of(at.item)
	s.Lock()
	defer s.Unlock()
	k, known := s.Get(at.item)
	if !known || !k.same(at) {
		return true
	}
	if now.Before(k.keepAt) {
		return false
	}
	k.keepAt = now.Add(time.Minute) // until then he should have done it
	s.Add(k.item, k)
	return true
}

// changed is called when a bucket has changed, where no request waits.
func (g *Guard) changed(ctx context.Context, at place) {
	if g.places.keepDue(at, g.Engine().Now()) {
		g.keep(ctx, at)
	}
}

// keep lets all buckets of a sale live on, and its root. A sale is kept as long after its last change as it says, with the buckets
// that have not changed. Where one can not be reached now, a later change does it.
func (g *Guard) keep(ctx context.Context, at place) {
	err := at.each(func(bucket int) error {
		_, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), seckillKeepScript, g.keysAt(at, bucket), g.Engine().ScriptNow(time.Millisecond))
		return err
	})
	if err == nil {
		_, _, _ = g.root(ctx, at, false)
	}
}

var errLostAtOpening = errors.New("the sale was lost while it was being opened: open it again")

// openBuckets opens a sale of several buckets: the root, then the buckets, each with its share, then the root says that they are ready. Each
// step can be done again by anybody, so it makes no difference who began and who ends it.
func (g *Guard) openBuckets(ctx context.Context, item string, sale Sale) (opened bool, err error) {
	root := place{item: item, buckets: 1}
	keep := g.options.Keep.Milliseconds()
	value, err := g.runYes(ctx, g.Engine().SettleTimeout(), seckillBeginScript, g.keysAt(root, 0)[:1],
		sale.Buckets, sale.Stock, schedule.Milli(sale.Opens), schedule.Milli(sale.Closes), sale.PerBuyer, sale.Hold.Milliseconds(),
		keep+keep/10, g.Engine().ScriptNow(time.Millisecond))
	if err != nil {
		return false, err
	}
	r := core.ReadReply(value, 9, 9)
	state, buckets, epoch := r.Text(), r.Number(), r.Text()
	total := r.Text()
	opens, closes, perBuyer, hold, kept := r.Text(), r.Text(), r.Text(), r.Text(), r.Text()
	stock, wrong := strconv.ParseInt(total, 10, 64)
	switch {
	case r.Err != nil:
		return false, r.Err
	case state == "none": // the caller has seen that somebody had begun
		return false, errLostAtOpening
	case state != "opening":
		return false, nil
	case wrong != nil || buckets < 2 || buckets > maxBuckets:
		return false, fmt.Errorf("sale %.100q has %d buckets and a stock of %.100q: want 2 to %d", item, buckets, total, maxBuckets)
	}
	at := place{item: item, buckets: int(buckets), epoch: epoch, tags: bucketTags(item, int(buckets))}
	err = at.each(func(bucket int) error {
		share := stock / buckets
		if int64(bucket) < stock%buckets {
			share++
		}
		_, err := g.runYes(ctx, g.Engine().SettleTimeout(), seckillOpenScript, g.keysAt(at, bucket),
			share, opens, closes, perBuyer, hold, kept, epoch, g.Engine().ScriptNow(time.Millisecond))
		return err
	})
	if err != nil {
		return false, err
	}
	found, marked, err := g.root(ctx, at, false)
	if err == nil && !found.same(at) {
		err = errLostAtOpening
	}
	return marked, err
}

// bucketOf returns the bucket that has an attempt's reservation: the buyer's where the attempt names him. Else all buckets are asked. An ID
// that two of them know is an ErrInvalidAttempt: nobody knows which is meant.
func (g *Guard) bucketOf(ctx context.Context, at place, a core.Attempt) (int, error) {
	if a.Actor != "" || at.buckets == 1 {
		return at.home(a.Actor), nil
	}
	reasons := make([]string, at.buckets)
	err := at.each(func(bucket int) error {
		value, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), seckillFindScript, g.keysAt(at, bucket), core.Encode(a.ID))
		if err != nil {
			return err
		}
		r := core.ReadReply(value, 3, 3)
		reasons[bucket] = r.Text()
		return r.Err
	})
	if err != nil {
		return 0, err
	}
	found, lost, knows := 0, 0, 0
	for bucket, reason := range reasons {
		switch reason {
		case "ok":
			found, knows = bucket, knows+1
		case "not_ready":
			lost = bucket
		}
	}
	switch knows {
	case 0:
		return lost, nil // it has to say so; 0 says that there is no such reservation
	case 1:
		return found, nil
	}
	return 0, fmt.Errorf("%w: %d buyers have a reservation %.100q: IDs have to be unique in a sale to be used without the buyer",
		core.ErrInvalid, knows, a.ID)
}
