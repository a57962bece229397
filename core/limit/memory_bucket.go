package limit

import (
	"math/bits"

	"github.com/gatehouse-go/gatehouse/core/kit"
)

// bucket is a token bucket as lua/limit/token_bucket.lua keeps it. It is full at since + offset +
// taken*window/max, and the zero bucket is full. The last units were taken at last.
type bucket struct{ since, offset, taken, max, last int64 }

func newBucket() counter { return new(bucket) }

// fillTime returns the microseconds in which units flow in, rounded up.
func fillTime(units, max, window int64) int64 {
	rest := window % max // keeps the products within 64 bits
	return units*(window/max) + ceilDiv(units*rest, max)
}

// at returns the bucket as a limit finds it at now.
func (b *bucket) at(l Limit, now int64) bucket {
	window, current := l.Window.Microseconds(), *b
	if b.max != 0 && b.max != l.Max {
		// The Max has changed. The bucket will be full at the same moment as before, to the microsecond.
		current.offset += fillTime(b.taken, b.max, window)
		current.taken = 0
	}
	current.max = l.Max
	if current.fullAt(window) <= now {
		return bucket{since: now, max: l.Max}
	}
	return current
}

// align makes all moments earlier by as much as the last units would be taken in the future: the clock was
// set back.
func (b *bucket) align(_ []Limit, now int64) {
	if back := b.last - now; back > 0 {
		b.since, b.last = b.since-back, now
	}
}

// fullAt returns the moment at which the bucket is full.
func (b *bucket) fullAt(window int64) int64 {
	return b.since + b.offset + fillTime(b.taken, b.max, window)
}

func (b *bucket) full(l Limit) int64 {
	if b.max == 0 {
		return 0
	}
	return b.fullAt(l.Window.Microseconds())
}

func (b *bucket) look(l Limit, now, need int64) (left, wait int64) {
	window, current := l.Window.Microseconds(), b.at(l, now)
	// Units may be taken while the bucket is full a window from now at the latest: floor(room*max/window) of
	// them.
	room := now + window - current.since - current.offset
	all := int64(0)
	if room > 0 {
		high, low := bits.Mul64(uint64(room), uint64(l.Max))
		quotient, _ := bits.Div64(high, low, uint64(window))
		all = int64(quotient)
	}
	if left = all - current.taken; left < need {
		wait = fillTime(current.taken+need, l.Max, window) - room
	}
	return left, wait
}

// take makes the bucket full later, also by more than it holds, but by 366 days more at most.
func (b *bucket) take(of []Limit, now, units int64, admitted bool) {
	l := of[0]
	if admitted {
		*b = b.at(l, now)
	}
	longest := kit.MaxTTL.Microseconds()
	window := l.Window.Microseconds()
	if b.max == 0 || b.fullAt(window) <= now {
		*b = bucket{since: now, max: l.Max}
	}
	b.last = max(b.last, now)
	b.offset += min(units/l.Max, longest/window+1) * window
	if rest := units % l.Max; b.max == l.Max {
		if b.taken += rest; b.taken >= l.Max {
			b.taken -= l.Max
			b.offset += window
		}
	} else { // the Max has changed since
		b.offset += fillTime(rest, l.Max, window)
	}
	b.offset -= max(b.fullAt(window)-(now+window+longest), 0)
}

func (b *bucket) giveBack(of []Limit, now, stamp, units int64) {
	l := of[0]
	window := l.Window.Microseconds()
	if b.max == 0 || now >= stamp+window || b.since > stamp || stamp > b.last || now >= b.fullAt(window) {
		return // a bucket that was full after the attempt has its units back already
	}
	if b.max == l.Max {
		if b.taken -= units; b.taken < 0 {
			b.taken += l.Max
			b.offset -= window
		}
	} else {
		// The Max has changed since. The units return as time, short of it by a microsecond at most.
		b.offset -= max(fillTime(units, l.Max, window)-1, 0)
	}
	if b.fullAt(window) <= now {
		*b = bucket{}
	}
}

func (b *bucket) seed(l Limit, now, left, more, resets int64) {
	window := l.Window.Microseconds()
	*b = bucket{since: now, last: now, max: l.Max, taken: l.Max - left}
	b.offset = resets - fillTime(more, l.Max, window)
	if b.taken == l.Max {
		b.taken, b.offset = 0, b.offset+window
	}
}
