package seckill

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/lua"
)

// A sale of several buckets is spread over as many slots of a Redis Cluster. Each bucket is a complete
// small sale with its own keys and stock, run by the same scripts. Buyers stay in one bucket, which the hash
// of the buyer's name selects, so the limit per buyer is exact. Stock moves between buckets: see loans.go.
// How the buckets are found: see root.go.

var (
	seckillFindScript = script.New("seckill_find", lua.Source("seckill/find"), script.Idempotent)
	seckillKeepScript = script.New("seckill_keep", lua.Source("seckill/keep"), script.Idempotent)
)

// maxBuckets is the maximum number of buckets of a sale.
const maxBuckets = 64

// spread is the stock of a sale of several buckets. All calls of a process share it. Only the fields that
// mu guards change.
type spread struct {
	g       *Guard
	item    string
	epoch   string
	buckets []*bucket

	mu     sync.Mutex
	keepAt time.Time // from then on, a change of a bucket has to renew the TTLs of all
	asked  time.Time // when the root was last asked in the background
}

// newSpread returns the stock of an item that was opened with this number of buckets and this epoch.
func (g *Guard) newSpread(item string, buckets int, epoch string) *spread {
	item = strings.Clone(item) // it is kept, and may be a substring of a long text
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

// homeOf returns the number of a buyer's bucket. It is the same in all processes and never changes.
func (s *spread) homeOf(buyer string) int {
	sum := sha256.Sum256([]byte(buyer))
	return int(binary.BigEndian.Uint64(sum[:8]) % uint64(len(s.buckets)))
}

// each calls f for all buckets concurrently, and returns the error of the lowest-numbered bucket that
// failed.
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

// bucketTags returns the tags of an item's buckets. The first is the item's own, where the root is. The
// others have their number added, and a second number where that spreads the slots evenly: a cluster gives
// each master a range of slots, and of a few random slots one master could easily have half. The tags are the
// same in all processes and never change.
func bucketTags(item string, buckets int) []string {
	tags := make([]string, buckets)
	tags[0] = script.Encode(item)
	part := func(bucket int) int { return slot(tags[bucket]) * buckets / slots }
	for i := 1; i < buckets; i++ {
		tags[i] = script.JoinTag(tags[0], strconv.Itoa(i))
		for more := 1; part(i) != (part(0)+i)%buckets; more++ {
			tags[i] = script.JoinTag(tags[0], strconv.Itoa(i), strconv.Itoa(more))
		}
	}
	return tags
}

// slots is the number of slots of a Redis Cluster.
const slots = 1 << 14

// slot returns the slot of a tag, by the CRC16 of the Redis Cluster specification (XMODEM).
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

// reserved renews the buckets' TTLs and remembers refusals, except that the item is sold out: borrow,
// which asks all buckets, has remembered that.
func (s *spread) reserved(d core.Decision, asked saleAsked) {
	if d.Allowed && s.keepDue(s.g.Engine().Now()) {
		s.g.Later(s.keep) // the request does not wait for it
	}
	if d.Reason != core.ReasonSoldOut {
		s.g.memory.hear(d, asked)
	}
}

// keepBefore sets the time from which a change has to renew the buckets' TTLs.
func (s *spread) keepBefore(moment time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keepAt = moment
}

// keepDue reports whether a change of a bucket has to renew the TTLs of all. Of several callers, one gets
// true.
func (s *spread) keepDue(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.keepAt) {
		return false
	}
	s.keepAt = now.Add(time.Minute) // in case the caller fails
	return true
}

// askDue reports whether it is time to ask the root again. Of several callers, one gets true.
func (s *spread) askDue(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if age := now.Sub(s.asked); age >= 0 && age < placeFor {
		return false
	}
	s.asked = now
	return true
}

// changed is called after a change of a bucket, where no request waits.
func (s *spread) changed(ctx context.Context) {
	if s.keepDue(s.g.Engine().Now()) {
		s.keep(ctx)
	}
}

// keep renews the TTLs of the root and all buckets of a sale. A sale is kept for its Keep after its last
// change, together with the buckets that have not changed. If a bucket cannot be reached now, a later change
// renews it.
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
// names one. Otherwise it asks all buckets. A cancelled reservation counts only where no bucket has another.
// An ID under which two buckets have reservations is an ErrInvalid: nobody knows which is meant.
func (s *spread) bucketOf(ctx context.Context, a core.Attempt) (int, error) {
	if a.Actor != "" {
		return s.homeOf(a.Actor), nil
	}
	reasons, states := make([]string, len(s.buckets)), make([]string, len(s.buckets))
	err := s.each(func(n int, b *bucket) error {
		value, err := b.run(ctx, seckillFindScript, script.Encode(a.ID))
		if err != nil {
			return err
		}
		r := script.ReadReply(value, 3, 3)
		reasons[n], states[n] = r.Text(), r.Text()
		if err := lostError(s.item, reasons[n]); err != nil {
			return err
		}
		return r.Err
	})
	if err != nil {
		return 0, err
	}
	found, know := 0, 0
	cancelled := max(slices.Index(states, "cancelled"), 0)
	lost := slices.Index(reasons, "not_ready")
	for n, reason := range reasons {
		if reason == "ok" && states[n] != "cancelled" {
			found, know = n, know+1
		}
	}
	switch {
	case know == 0 && lost >= 0:
		return lost, nil // it has to say so
	case know == 0:
		return cancelled, nil // or bucket 0, which says that there is no such reservation
	case know == 1:
		return found, nil
	}
	return 0, fmt.Errorf("%w: %d buyers have a reservation %.100q: "+
		"IDs must be unique in a sale to be used without the buyer", core.ErrInvalid, know, a.ID)
}
