package limit

import "math/bits"

// bucket is a token bucket as lua/token_bucket.lua keeps it: full at since + offset + taken*window/max. The zero bucket is full.
type bucket struct{ since, offset, taken, max int64 }

func newBucket() counter { return new(bucket) }

// fillTime returns the microseconds in which so many units flow in, rounded up.
func fillTime(units, max, window int64) int64 {
	rest := window % max // so that no product is beyond 64 bits
	return units*(window/max) + ceilDiv(units*rest, max)
}

// at returns the bucket as a limit finds it now.
func (b *bucket) at(l Limit, now int64) bucket {
	window, current := l.Window.Microseconds(), *b
	if b.max != 0 && b.max != l.Max {
		// The limit has been changed: the bucket will be full when it would have been, to the microsecond.
		current.offset += fillTime(b.taken, b.max, window)
		current.taken = 0
	}
	current.max = l.Max
	if current.full(window) <= now {
		return bucket{since: now, max: l.Max}
	}
	return current
}

// full returns when the bucket is full.
func (b *bucket) full(window int64) int64 {
	return b.since + b.offset + fillTime(b.taken, b.max, window)
}

func (b *bucket) look(l Limit, now, need int64) (left, wait, moment int64) {
	window, current := l.Window.Microseconds(), b.at(l, now)
	// All units whose span ends a window from now at the latest may have been taken: the floor of room*max/window.
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
	return left, wait, current.since
}

func (b *bucket) take(l Limit, now, _, cost int64) {
	*b = b.at(l, now)
	if b.taken += cost; b.taken >= l.Max {
		b.taken -= l.Max
		b.offset += l.Window.Microseconds()
	}
}

func (*bucket) refused(Limit, int64) {}

func (b *bucket) giveBack(l Limit, now, stamp, cost int64) {
	window := l.Window.Microseconds()
	if b.max == 0 || now-stamp > refundable.Microseconds() || now >= stamp+window ||
		b.since > stamp || now >= b.full(window) {
		return // a bucket that was full after the attempt has had its units back
	}
	if b.max == l.Max {
		if b.taken -= cost; b.taken < 0 {
			b.taken += l.Max
			b.offset -= window
		}
	} else {
		// The limit has been changed since. What the units took is time, less than a microsecond of which is kept here.
		b.offset -= max(fillTime(cost, l.Max, window)-1, 0)
	}
	if b.full(window) <= now {
		*b = bucket{}
	}
}
