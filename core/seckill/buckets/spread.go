package buckets

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/lua"
)

// Each bucket is a complete small sale with its own keys and stock, run by the scripts of package seckill.
// Buyers stay in one bucket, which the hash of the buyer's name selects, so the limit per buyer is exact.
// Stock moves between buckets: see loans.go. How the buckets are found: see root.go.

var keepScript = script.New("buckets_keep", lua.Source("buckets/keep"), script.Idempotent)

// spread is a sale of several buckets. All calls of a process share it. Only the fields that mu guards
// change.
type spread struct {
	g     *Guard
	item  string
	epoch string
	tags  []string // of the buckets

	mu     sync.Mutex
	keepAt time.Time // from then on, a change of a bucket has to renew the TTLs of all
	asked  time.Time // when the root was last asked in the background
}

// newSpread returns the sale of an item that was opened with this number of buckets and this epoch.
func (g *Guard) newSpread(item string, buckets int, epoch string) *spread {
	item = strings.Clone(item) // it is kept, and may be a substring of a long text
	return &spread{g: g, item: item, epoch: epoch, tags: bucketTags(item, epoch, buckets)}
}

func (s *spread) same(other *spread) bool {
	return other != nil && other.item == s.item && other.epoch == s.epoch && len(other.tags) == len(s.tags)
}

// homeOf returns the number of a buyer's bucket. It is the same in all processes and never changes.
func (s *spread) homeOf(buyer string) int {
	sum := sha256.Sum256([]byte(buyer))
	return int(binary.BigEndian.Uint64(sum[:8]) % uint64(len(s.tags)))
}

// keys returns the keys of a bucket.
func (s *spread) keys(n int) []string { return s.g.parts.Keys(s.tags[n]) }

// run runs a script on a bucket; lasts says of which replies callers rely on.
func (s *spread) run(
	ctx context.Context, lasts func(reply any) bool, n int, of *script.Script, args ...any,
) (any, error) {
	return s.g.parts.Run(ctx, lasts, of, s.keys(n), append(args, s.g.now())...)
}

// each calls f for all buckets concurrently, and returns the error of the lowest-numbered bucket that
// failed.
func (s *spread) each(f func(n int, tag string) error) error {
	errs := make([]error, len(s.tags))
	var all sync.WaitGroup
	for n, tag := range s.tags[1:] {
		all.Go(func() { errs[n+1] = f(n+1, tag) })
	}
	errs[0] = f(0, s.tags[0])
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// bucketTags returns the tags of an item's buckets: the item, the epoch, the number, and a second number
// where that spreads the slots evenly: a cluster gives each master a range of slots, and of a few random
// slots one master could easily have half. The tags are the same in all processes and never change.
func bucketTags(item, epoch string, buckets int) []string {
	tags := make([]string, buckets)
	part := func(bucket int) int { return slot(tags[bucket]) * buckets / slots }
	for i := range tags {
		tags[i] = script.JoinTag(script.Encode(item), epoch, strconv.Itoa(i))
		for more := 1; part(i) != (part(0)+i)%buckets; more++ {
			tags[i] = script.JoinTag(script.Encode(item), epoch, strconv.Itoa(i), strconv.Itoa(more))
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

// reserve holds units in the buyer's bucket.
func (s *spread) reserve(ctx context.Context, a core.Attempt) (core.Decision, error) {
	a.Resource = s.tags[s.homeOf(a.Actor)]
	d, err := s.g.parts.Check(ctx, a)
	d.Attempt.Resource = s.item
	if err == nil && d.Allowed && !d.Replayed && s.keepDue(s.g.Engine().Now()) {
		s.g.Later(s.keep) // the request does not wait for it
	}
	return d, err
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
	err := s.each(func(n int, _ string) error {
		_, err := s.run(ctx, nil, n, keepScript, "", "")
		return err
	})
	if err == nil {
		_, _, _ = s.g.askRoot(ctx, s.item, s.epoch, "")
	}
}

// end ends a reservation by f, which is called with its bucket as the attempt's resource.
func (s *spread) end(
	ctx context.Context, a core.Attempt, f func(ctx context.Context, a core.Attempt) (core.Decision, error),
) (core.Decision, error) {
	n := s.homeOf(a.Actor)
	a.Resource = s.tags[n]
	d, err := f(ctx, a)
	if err == nil && lacksUnits(d) {
		d, err = s.endBorrowing(ctx, n, d, func(ctx context.Context) (core.Decision, error) { return f(ctx, a) })
	}
	d.Attempt.Resource = s.item
	if err == nil && d.Allowed && !d.Replayed {
		s.changed(ctx)
	}
	return d, err
}
