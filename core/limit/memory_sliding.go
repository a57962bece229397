package limit

// slidingLog is the log of a sliding window as lua/sliding_windows.lua keeps it, for limits that count one by
// one and for those that count by parts. Its runs are in the order of the attempts, which differs from that
// of their moments after a clock was set back.
type slidingLog struct {
	runs []run // the log begins at head
	head int
	sum  int64 // units in the log
}

// run is a number of units that count as taken at one moment. It takes 12 bytes, because a log may have many.
type run struct {
	high int32 // the moment, in grains of the limit since 1970
	low  uint32
	n    uint32 // up to a billion units with a resolution
}

func newSlidingLog() counter { return new(slidingLog) }

func newRun(at, n int64) run { return run{high: int32(at >> 32), low: uint32(at), n: uint32(n)} }

func (r run) at() int64 { return int64(r.high)<<32 | int64(r.low) }

// leaves returns the moment at which the run leaves the limit's window.
func (r run) leaves(l Limit) int64 { return r.at()*l.grain() + l.Window.Microseconds() }

// gone returns how many runs have left the window, and their units. A run leaves when its window is over and
// all runs before it have left.
func (s *slidingLog) gone(l Limit, now int64) (runs int, units int64) {
	for _, r := range s.runs[s.head:] {
		if r.leaves(l) > now {
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
		// After a clock was set back, the first run may leave later than this one.
		wait = max(log[0].leaves(l), r.leaves(l)) - now
	}
	moment = now
	if last := len(s.runs) - 1; l.Resolution > 0 && s.head <= last {
		// Until a clock that was set back has caught up, units join the last part.
		moment = max(now, (s.runs[last].at()-1)*l.grain()+1)
	}
	return left, wait, moment
}

func (s *slidingLog) take(l Limit, now, moment, cost int64) {
	s.drop(s.gone(l, now))
	s.sum += cost
	at := ceilDiv(moment, l.grain())
	if s.head < len(s.runs) {
		if last := &s.runs[len(s.runs)-1]; last.at() == at {
			last.n += uint32(cost)
			return
		}
	}
	s.push(newRun(at, cost))
}

// refused drops the runs that have left when they are many, as the script does.
func (s *slidingLog) refused(l Limit, now int64) {
	runs, units := s.gone(l, now)
	if l.Resolution == 0 && units > 50 || l.Resolution > 0 && runs > 25 {
		s.drop(runs, units)
	}
}

func (s *slidingLog) giveBack(l Limit, _, stamp, cost int64) {
	at := ceilDiv(stamp, l.grain())
	for i := s.head; i < len(s.runs) && cost > 0; i++ {
		r := &s.runs[i]
		if r.at() != at {
			continue
		}
		n := min(cost, int64(r.n))
		r.n -= uint32(n)
		s.sum -= n
		cost -= n
		if r.n == 0 && l.Resolution == 0 { // with a resolution the part stays in the log
			s.runs = append(s.runs[:i], s.runs[i+1:]...)
			i--
		}
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
