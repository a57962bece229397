package limit

// slidingLog is the log of a sliding window as lua/limit/sliding_windows.lua keeps it, for limits that count
// one by one and for those that count by parts. Its runs are in the order of their moments, none of which is
// in the future.
type slidingLog struct {
	runs  []run // the log begins at head
	head  int
	sum   int64 // units in the log
	grain int64 // in which moments are counted
	birth int64 // when the first unit came into an empty log
}

// run is a number of units that count as taken at one moment. It takes 12 bytes, because a log may have many.
type run struct {
	high int32 // the moment, in grains of the log since 1970
	low  uint32
	n    uint32 // up to a billion units with a resolution
}

func newSlidingLog() counter { return new(slidingLog) }

func newRun(at, n int64) run { return run{high: int32(at >> 32), low: uint32(at), n: uint32(n)} }

func (r run) at() int64 { return int64(r.high)<<32 | int64(r.low) }

// align makes units of the future units of now: the clock was set back, and nobody knows how long before now
// they were taken.
func (s *slidingLog) align(l Limit, now int64) {
	from, to := s.grain, l.grain()
	last := len(s.runs) - 1
	// Each change rounds up, so two releases in turn must not make it in turn: to longer parts only for room.
	if n := len(s.runs) - s.head; to > from && n > 0 && n <= maxResolution {
		to = from
	}
	if from == to && (s.head > last || s.runs[last].at() <= ceilDiv(now, to)) {
		return
	}
	s.drop(s.gone(l, now))
	s.grain, s.birth = to, min(s.birth, now)
	log := s.runs[s.head:]
	s.runs = s.runs[:s.head]
	for _, r := range log {
		if r.n > 0 {
			s.add(min(ceilDiv(r.at()*from, to), ceilDiv(now, to)), int64(r.n))
		}
	}
}

// copyFrom begins a log with the units of another one, or with none.
func (s *slidingLog) copyFrom(other *slidingLog, l Limit, now int64) {
	if s.grain = l.grain(); other == nil {
		return
	}
	for _, r := range other.runs[other.head:] {
		at := min(ceilDiv(r.at()*other.grain, s.grain), ceilDiv(now, s.grain))
		if r.n > 0 && at*s.grain+l.Window.Microseconds() > now {
			if s.sum == 0 { // what was taken before is not in it
				s.birth = min(max(other.birth, (r.at()-1)*other.grain), now)
			}
			s.sum += int64(r.n)
			s.add(at, int64(r.n))
		}
	}
}

// add appends units that were taken at this moment. In a log that is being rewritten in place it never passes
// the runs that are still to be read.
func (s *slidingLog) add(at, n int64) {
	if s.head < len(s.runs) {
		if last := &s.runs[len(s.runs)-1]; last.at() == at {
			last.n += uint32(n)
			return
		}
	}
	s.push(newRun(at, n))
}

// leaves returns the moment at which a run leaves the limit's window.
func (s *slidingLog) leaves(r run, l Limit) int64 { return r.at()*s.grain + l.Window.Microseconds() }

// gone returns how many runs have left the window, and their units.
func (s *slidingLog) gone(l Limit, now int64) (runs int, units int64) {
	for _, r := range s.runs[s.head:] {
		if s.leaves(r, l) > now {
			break
		}
		runs++
		units += int64(r.n)
	}
	return runs, units
}

func (s *slidingLog) look(l Limit, now, need int64) (left, wait, moment int64) {
	runs, units := s.gone(l, now)
	left = l.Max - s.sum + units
	lacking := need - left
	log := s.runs[s.head+runs:]
	for _, r := range log {
		if lacking <= 0 {
			break
		}
		lacking -= int64(r.n)
		wait = s.leaves(r, l) - now
	}
	return left, wait, now
}

func (s *slidingLog) take(l Limit, now, moment, cost int64) {
	s.drop(s.gone(l, now))
	if s.head == len(s.runs) {
		s.birth, s.grain = now, l.grain()
	}
	s.birth = min(s.birth, now) // the clock may have been set back within a part
	s.sum += cost
	s.add(ceilDiv(moment, s.grain), cost)
}

// refused drops the runs that have left when they are many, as the script does.
func (s *slidingLog) refused(l Limit, now int64) {
	runs, units := s.gone(l, now)
	if l.Resolution == 0 && units > 50 || l.Resolution > 0 && runs > 25 {
		s.drop(runs, units)
	}
}

func (s *slidingLog) giveBack(_ Limit, _, stamp, cost int64) { s.remove(stamp, cost) }

// remove removes units with the given stamp.
func (s *slidingLog) remove(stamp, cost int64) {
	at := ceilDiv(stamp, s.grain)
	if stamp < s.birth && (!s.oneByOne() || at != ceilDiv(s.birth, s.grain)) {
		return // the attempt's log was forgotten
	}
	for i := s.head; i < len(s.runs) && cost > 0; i++ {
		r := &s.runs[i]
		if r.at() != at {
			continue
		}
		n := min(cost, int64(r.n))
		r.n -= uint32(n)
		s.sum -= n
		cost -= n
		if r.n == 0 && s.oneByOne() { // else the part stays in the log
			s.runs = append(s.runs[:i], s.runs[i+1:]...)
			i--
		}
	}
	if s.sum == 0 {
		*s = slidingLog{grain: s.grain}
	}
}

// charge adds units of now, or of the newest moment if that is later: the clock was set back.
func (s *slidingLog) charge(l Limit, now, units int64) {
	if s.head == len(s.runs) {
		s.birth = now
		if l.Window > 0 {
			s.grain = l.grain()
		}
	}
	at := ceilDiv(now, s.grain)
	n := min(units, mostByParts)
	if last := len(s.runs) - 1; s.head <= last {
		at = max(at, s.runs[last].at())
		if s.runs[last].at() == at {
			n = min(n, mostByParts-int64(s.runs[last].n))
		}
	}
	s.sum += n
	s.add(at, n)
}

// oneByOne reports whether the log counts units one by one: parts are longer.
func (s *slidingLog) oneByOne() bool { return s.grain == Limit{}.grain() }

func (s *slidingLog) full(l Limit) int64 {
	log := s.runs[s.head:]
	if len(log) == 0 {
		return 0
	}
	return s.leaves(log[len(log)-1], l)
}

func (s *slidingLog) seed(l Limit, now, left, more, resets int64) {
	runs := s.runs[:0]
	if cap(runs) > 8 { // of an outage: it is no longer needed
		runs = nil
	}
	*s = slidingLog{runs: runs, sum: l.Max - left, grain: l.grain(), birth: now}
	s.add(ceilDiv(now+resets-l.Window.Microseconds(), s.grain), more)
	if s.sum > more {
		s.add(ceilDiv(now, s.grain), s.sum-more)
	}
}

func (s *slidingLog) drop(runs int, units int64) {
	s.head += runs
	s.sum -= units
}

// push adds a run. When the slice is full, push moves the log to its beginning, or to a new slice if this one
// is too small or far too large. So a log takes at most a quarter more than it holds, except for what it has
// dropped since.
func (s *slidingLog) push(r run) {
	if len(s.runs) == cap(s.runs) {
		log, room := s.runs[s.head:], s.runs
		if want := len(log) + len(log)/4 + 4; cap(room) < want || cap(room) > 4*want {
			room = make([]run, len(log), want)
		}
		s.runs, s.head = room[:copy(room, log)], 0
	}
	s.runs = append(s.runs, r)
}
