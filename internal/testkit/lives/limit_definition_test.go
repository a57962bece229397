package lives

import (
	"maps"
	"slices"
	"time"

	"github.com/gatehouse-go/gatehouse/core/limit"
)

// A ledger defines what a rate limit may admit. Moments are microseconds.
type ledger interface {
	// look notes that an attempt or a Peek is decided now: units of the future become units of now.
	look(now int64)

	// used returns how many units certainly count in the limit at a moment, and how many may.
	used(l limit.Limit, at int64) (least, most int64)

	// borders returns the moments at which units come back, as far as the ledger knows them now.
	borders(l limit.Limit) []int64

	// asked notes an attempt that was decided. The id is 0 where it was refused.
	asked(limits []limit.Limit, now int64, id int, cost int64)

	// giveBack notes a refund. It reports false where the page does not say what it gives back.
	giveBack(t *taking, now int64) bool

	// forget forgets all units, with the moment from which on new ones count.
	forget(now int64)

	clone() ledger
}

// The definition of a sliding window:
//   - a limit counts the units that were admitted within its Window, under whatever limits, unless they were
//     given back; by parts a unit was admitted at the end of its part
//   - a Window may lack units only where neither it nor a longer one was asked for, for its length
//   - an actor of whom no unit counts is a new one
//   - where the clock was set back, units of its future are units of now; what has left a window may stay away
type slidingLedger struct {
	part  int64
	units []slidingUnits
	last  map[int64]int64 // by window: when it was asked for last
	begun int64           // units that were taken before are forgotten
}

// slidingUnits are the units of an attempt.
type slidingUnits struct {
	id        int
	n         int64
	stamp, at int64 // when they were admitted, and as when they count
	oldest    int64 // the greatest age that an attempt has seen
	known     int64 // until when they are certainly known
	may       bool  // they may be unknown, or given back
}

func (s *slidingLedger) counted(at int64) int64 { return (at + s.part - 1) / s.part * s.part }

func (s *slidingLedger) look(now int64) {
	counts, longest := s.counted(now), int64(0)
	s.begun = min(s.begun, now)
	for window, at := range s.last {
		s.last[window] = min(at, counts)
		longest = max(longest, s.last[window]+window)
	}
	for i := range s.units {
		u := &s.units[i]
		if u.at > counts {
			u.known -= u.at - counts
			u.at = counts
		}
		u.known = min(u.known, longest)
		u.may = u.may || now >= u.known
		u.oldest = max(u.oldest, now-u.at)
	}
}

func (s *slidingLedger) used(l limit.Limit, at int64) (least, most int64) {
	window := l.Window.Microseconds()
	for _, u := range s.units {
		if at-u.at >= window {
			continue
		}
		most += u.n
		if !u.may && u.oldest < window {
			least += u.n
		}
	}
	return least, most
}

func (s *slidingLedger) borders(l limit.Limit) (at []int64) {
	for _, u := range s.units {
		at = append(at, u.at+l.Window.Microseconds())
	}
	return at
}

func (s *slidingLedger) asked(limits []limit.Limit, now int64, id int, cost int64) {
	if !slices.ContainsFunc(s.units, func(u slidingUnits) bool { return !u.may }) {
		clear(s.last)
	}
	counts, known := s.counted(now), int64(0)
	for _, l := range limits {
		window := l.Window.Microseconds()
		s.last[window] = counts
		for i := range s.units {
			if u := &s.units[i]; !u.may {
				u.known = max(u.known, u.at+window)
			}
		}
	}
	for window, at := range s.last {
		known = max(known, at+window)
	}
	if id != 0 {
		s.units = append(s.units, slidingUnits{id: id, n: cost, stamp: now, at: counts, known: known})
	}
}

func (s *slidingLedger) giveBack(t *taking, now int64) bool {
	for i, u := range s.units {
		if u.id != t.id || u.at != s.counted(u.stamp) {
			continue
		}
		if u.may || now >= u.known || s.left(u, now) { // those that have left may be in a longer window
			s.units[i].may = true
			return true
		}
		s.units = slices.Delete(s.units, i, i+1)
		return true
	}
	// They are not where they were: a failover or a Reset has lost them, or the clock was set back.
	for i := range s.units {
		u := &s.units[i]
		u.may = u.may || u.id == t.id || u.at == s.counted(t.stamp) && (t.stamp >= s.begun || u.stamp == t.stamp)
	}
	return true
}

// left reports whether units have left all windows that were asked for.
func (s *slidingLedger) left(u slidingUnits, now int64) bool {
	for window := range s.last {
		if max(u.oldest, now-u.at) < window {
			return false
		}
	}
	return true
}

func (s *slidingLedger) forget(now int64) {
	s.units, s.begun = nil, now
	clear(s.last)
}

func (s *slidingLedger) clone() ledger {
	c := *s
	c.units, c.last = slices.Clone(s.units), maps.Clone(s.last)
	return &c
}

// The definition of a fixed window:
//   - a window begins with its first unit; its units count until it ends, whatever Max becomes
//   - a window that has got all its units back has not begun
//   - where the clock was set back, a window of its future begins now
type fixedLedger struct {
	begins, ends, taken int64 // taken is 0 where no window is known
	of                  []int // the attempts
}

func (f *fixedLedger) look(now int64) {
	if late := f.begins - now; f.taken > 0 && late > 0 {
		f.begins, f.ends = now, f.ends-late
	}
}

func (f *fixedLedger) used(_ limit.Limit, at int64) (least, most int64) {
	if at < f.ends {
		return f.taken, f.taken
	}
	return 0, 0
}

func (f *fixedLedger) borders(limit.Limit) []int64 {
	if f.taken == 0 {
		return nil
	}
	return []int64{f.ends}
}

func (f *fixedLedger) asked(limits []limit.Limit, now int64, id int, cost int64) {
	if id == 0 {
		return
	}
	if f.taken == 0 || now >= f.ends {
		*f = fixedLedger{begins: now, ends: now + limits[0].Window.Microseconds()}
	}
	f.taken, f.of = f.taken+cost, append(f.of, id)
}

func (f *fixedLedger) giveBack(t *taking, now int64) bool {
	if f.taken == 0 || now >= f.ends || t.stamp < f.begins || t.stamp >= f.ends {
		return true
	}
	if !slices.Contains(f.of, t.id) {
		return false // a window that goes on since before the attempt gives back what others took
	}
	f.look(now)
	f.taken -= t.cost
	return true
}

func (f *fixedLedger) forget(int64) { *f = fixedLedger{} }

func (f *fixedLedger) clone() ledger {
	c := *f
	c.of = slices.Clone(f.of)
	return &c
}

// The definition of a token bucket:
//   - a bucket holds Max units, and an empty one fills at a steady rate in Window; with another Max it is full
//     at the same moment as before
//   - units come back that the bucket has not regained
//   - where the clock was set back, the bucket is as full as when units were last taken; one that a refund has
//     filled is full
type bucketLedger struct {
	full   int64 // when it is full
	since  int64 // when it was last full
	last   int64 // when units were last taken
	of     []int // the attempts since then
	most   int64 // the Max by which the last units were taken
	unsure int64 // units that came back under another Max leave a microsecond each at most
}

func (b *bucketLedger) look(now int64) {
	if late := b.last - now; late > 0 && b.full > 0 {
		b.full, b.since, b.last = b.full-late, b.since-late, now
	}
}

func (b *bucketLedger) used(l limit.Limit, at int64) (least, most int64) {
	each := l.Window.Microseconds() / l.Max
	missing := func(full int64) int64 { return max(full-at+each-1, 0) / each }
	return missing(b.full), min(missing(b.full+b.unsure), max(l.Max, missing(b.full)))
}

func (b *bucketLedger) borders(l limit.Limit) (at []int64) {
	each := l.Window.Microseconds() / l.Max
	for n := range l.Max {
		at = append(at, b.full-n*each)
	}
	return at
}

func (b *bucketLedger) asked(limits []limit.Limit, now int64, id int, cost int64) {
	if id == 0 {
		return
	}
	if b.full <= now {
		*b = bucketLedger{full: now, since: now}
	}
	b.full += cost * limits[0].Window.Microseconds() / limits[0].Max
	b.last, b.of, b.most = now, append(b.of, id), limits[0].Max
}

func (b *bucketLedger) giveBack(t *taking, now int64) bool {
	window := t.limits[0].Window.Microseconds()
	if b.full <= now || t.stamp < b.since || t.stamp > b.last || now >= t.stamp+window {
		return true
	}
	if !slices.Contains(b.of, t.id) {
		return false // one that was not full since the attempt gives back what others took
	}
	b.full -= t.cost * window / t.limits[0].Max
	if b.most != t.limits[0].Max {
		b.unsure++
	}
	if b.full <= now {
		*b = bucketLedger{}
	}
	return true
}

func (b *bucketLedger) forget(int64) { *b = bucketLedger{} }

func (b *bucketLedger) clone() ledger {
	c := *b
	c.of = slices.Clone(b.of)
	return &c
}

// A taking is an attempt that was allowed.
type taking struct {
	id     int
	d      decided
	limits []limit.Limit
	cost   int64
	stamp  int64
	refund int       // the call that gave it back
	when   time.Time // that was sent
}
