package seckill

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/lua"
)

// A sale of several buckets is spread over as many slots of a Redis Cluster. Each bucket is a complete small
// sale with keys and a stock of its own, run by the same scripts. Buyers stay: a buyer's bucket is the hash
// of the buyer's name, so what one buyer may have is counted in one place and exactly. The stock moves: see
// loans.go. How the buckets are found: see root.go.

var (
	seckillFindScript = core.NewScript("seckill_find", lua.SeckillFind, core.Idempotent)
	seckillKeepScript = core.NewScript("seckill_keep", lua.SeckillKeep, core.Idempotent)
)

// maxBuckets is how many buckets a sale may have.
const maxBuckets = 64

// spread is the stock of a sale of several buckets. All calls of a process share it: only what mu guards
// changes.
type spread struct {
	g       *Guard
	item    string
	epoch   string
	buckets []*bucket

	mu     sync.Mutex
	keepAt time.Time // when the next change of a bucket has to let all of them live on
	asked  time.Time // when the root was asked in the background
}

// newSpread makes the stock of an item that was opened with so many buckets at that epoch.
func (g *Guard) newSpread(item string, buckets int, epoch string) *spread {
	item = strings.Clone(item) // it may be a piece of a long text, and is kept
	s := &spread{g: g, item: item, epoch: epoch}
	for n, tag := range bucketTags(item, buckets) {
		s.buckets = append(s.buckets, &bucket{g: g, item: item, number: n, tag: tag, epoch: epoch})
	}
	return s
}

func (s *spread) same(other stock) bool {
	of, ok := other.(*spread)
	return ok && of.item == s.item && of.epoch == s.epoch && len(of.buckets) == len(s.buckets)
}

// homeOf is the number of a buyer's bucket. It is the same in all processes and for all time.
func (s *spread) homeOf(buyer string) int {
	sum := sha256.Sum256([]byte(buyer))
	return int(binary.BigEndian.Uint64(sum[:8]) % uint64(len(s.buckets)))
}

// each calls f for all buckets at once, and returns the error of the first bucket that has one.
func (s *spread) each(f func(n int, b *bucket) error) error {
	errs := make([]error, len(s.buckets))
	var all sync.WaitGroup
	for n, b := range s.buckets[1:] {
		all.Go(func() { errs[n+1] = f(n+1, b) })
	}
	errs[0] = f(0, s.buckets[0])
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// bucketTags are the tags of an item's buckets. The first is the item's own, where the root is. The others
// have a number added, and one more where that spreads the slots of all of them evenly: a cluster gives its
// masters ranges of slots, and of a few slots at random one master easily has half. They are the same in all
// processes and for all time.
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

// slots is how many slots a Redis Cluster has.
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

func (s *spread) reserve(ctx context.Context, a core.Attempt) (core.Decision, next, error) {
	d, then, err := s.buckets[s.homeOf(a.Actor)].reserve(ctx, a)
	if then == decided && d.Reason == core.ReasonSoldOut {
		then = wantsUnits
	}
	return d, then, err
}

// reserved lets the buckets live on, and remembers refusals. That all is sold, borrow has remembered: it asks
// all buckets.
func (s *spread) reserved(d core.Decision, asked saleAsked) {
	if d.Allowed && s.keepDue(s.g.Engine().Now()) {
		s.g.Engine().Later(s.keep) // a request does not wait for it
	}
	if d.Reason != core.ReasonSoldOut {
		s.g.memory.hear(d, asked)
	}
}

// keepBefore says that the buckets have to live on before that moment.
func (s *spread) keepBefore(moment time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keepAt = moment
}

// keepDue reports whether a change of a bucket, now, has to let all of them live on. One of several callers
// is told so.
func (s *spread) keepDue(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.keepAt) {
		return false
	}
	s.keepAt = now.Add(time.Minute) // until then the caller should have done it
	return true
}

// askDue reports whether it is time to ask the root again. One of several callers is told so.
func (s *spread) askDue(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if age := now.Sub(s.asked); age >= 0 && age < placeFor {
		return false
	}
	s.asked = now
	return true
}

// changed is called when a bucket has changed, where no request waits.
func (s *spread) changed(ctx context.Context) {
	if s.keepDue(s.g.Engine().Now()) {
		s.keep(ctx)
	}
}

// keep lets all buckets of a sale live on, and its root. A sale is kept as long after its last change as it
// says, with the buckets that have not changed. Where one cannot be reached now, a later change does it.
func (s *spread) keep(ctx context.Context) {
	err := s.each(func(_ int, b *bucket) error {
		_, err := b.run(ctx, seckillKeepScript, b.now())
		return err
	})
	if err == nil {
		_, _, _ = s.g.askRoot(ctx, s.g.runYes, s.item, s.epoch, "")
	}
}

func (s *spread) end(ctx context.Context, e ending, a core.Attempt) (core.Decision, error) {
	d := core.Decision{Guard: s.g.Name(), Attempt: core.Attempt{Resource: a.Resource, ID: a.ID}}
	n, err := s.bucketOf(ctx, a)
	if err == nil {
		d, err = s.buckets[n].end(ctx, e, a)
	}
	if err == nil && lacksUnits(d) {
		d, err = s.endBorrowing(ctx, e, n, a, d)
	}
	if err == nil && d.Allowed && !d.Replayed {
		s.changed(ctx)
	}
	return d, err
}

// bucketOf returns the number of the bucket that has an attempt's reservation: the buyer's where the attempt
// names one. Else all buckets are asked. An ID that two of them know is an ErrInvalid: nobody knows which is
// meant.
func (s *spread) bucketOf(ctx context.Context, a core.Attempt) (int, error) {
	if a.Actor != "" {
		return s.homeOf(a.Actor), nil
	}
	reasons := make([]string, len(s.buckets))
	err := s.each(func(n int, b *bucket) error {
		value, err := b.run(ctx, seckillFindScript, core.Encode(a.ID))
		if err != nil {
			return err
		}
		r := core.ReadReply(value, 3, 3)
		reasons[n] = r.Text()
		return r.Err
	})
	if err != nil {
		return 0, err
	}
	found, lost, know := 0, 0, 0
	for n, reason := range reasons {
		switch reason {
		case "ok":
			found, know = n, know+1
		case "not_ready":
			lost = n
		}
	}
	switch know {
	case 0:
		return lost, nil // it has to say so; 0 says that there is no such reservation
	case 1:
		return found, nil
	}
	return 0, fmt.Errorf("%w: %d buyers have a reservation %.100q: "+
		"IDs have to be unique in a sale to be used without the buyer", core.ErrInvalid, know, a.ID)
}
