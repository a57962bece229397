package limit

import (
	"slices"
	"sort"
)

// slidingLog is a log of the units of an actor, as lua/limit/sliding_log.lua keeps it: a limit is a view of
// it. Its runs are in the order of their moments, none of which is in the future.
type slidingLog struct {
	runs   []run // the log begins at head
	views  []view
	other  *slidingLog // the log by parts beside one that counts one by one, or the reverse; it has none
	grain  int64       // in which moments are counted; 0: no attempt has come yet
	birth  int64       // when the first unit came into an empty log
	head   int32
	before uint32 // units that were taken before those in the log: see run.sum
}

// run is a number of units that count as taken at one moment. It takes 12 bytes, because a log may have many.
type run struct {
	high int32 // the moment, in grains of the log since 1970
	low  uint32
	sum  uint32 // of all units up to here, which may have begun anew at 0: a log has fewer
}

// view is a limit for which the log has units. It says which have left, since they do not come back when the
// clock is set back.
type view struct {
	window, named int64 // the microseconds of the window, and when the limit took units last
	most, gone    uint32
}

func newSlidingLog() counter { return new(slidingLog) }

func newRun(at int64, sum uint32) run { return run{high: int32(at >> 32), low: uint32(at), sum: sum} }

func (r run) at() int64 { return int64(r.high)<<32 | int64(r.low) }

func (s *slidingLog) log() []run { return s.runs[s.head:] }

// through returns how many units of the log are in its first runs.
func (s *slidingLog) through(runs int) int64 {
	if runs == 0 {
		return 0
	}
	return int64(s.runs[int(s.head)+runs-1].sum - s.before)
}

func (s *slidingLog) units() int64 { return s.through(len(s.log())) }

// counts reports whether the log counts in the way of a limit: one by one, or by parts, which are longer.
func (s *slidingLog) counts(l Limit) bool { return s.grain == Limit{}.grain() == (l.Resolution == 0) }

// of returns the log of a limit, and the other one; nil where there is none.
func (s *slidingLog) of(l Limit) (own, other *slidingLog) {
	if s.counts(l) {
		return s, s.other
	}
	return s.other, s
}

// window returns for how long the log has units.
func (s *slidingLog) window() (longest int64) {
	for _, v := range s.views {
		longest = max(longest, v.window)
	}
	return longest
}

// deciding returns the log that decides about a limit: its own, unless only the other one goes back far
// enough. The other one decides until an attempt is allowed: then provide makes the limit's own of it.
func (s *slidingLog) deciding(l Limit) *slidingLog {
	own, other := s.of(l)
	if own == nil || other != nil && own.window() < min(l.Window.Microseconds(), other.window()) {
		return other
	}
	return own
}

func (s *slidingLog) align(of []Limit, now int64) {
	if s.grain == 0 {
		s.grain = of[0].grain()
	}
	for log := s; log != nil; log = log.other {
		if n := len(log.log()); n > 0 && log.log()[n-1].at() > ceilDiv(now, log.grain) {
			log.become(log, log.grain, now)
		}
	}
}

// provide gives each limit its log. Each change of parts rounds up, so two releases in turn must not make it
// in turn: parts become longer only for room, and shorter by the log that is exact.
func (s *slidingLog) provide(of []Limit, now int64) {
	for _, l := range of {
		own, other := s.of(l)
		from, grain := s.deciding(l), l.grain()
		if own == nil {
			own = &slidingLog{grain: grain}
			s.other = own
		}
		switch {
		case from != own:
			own.become(from, min(own.grain, grain), now)
		case grain < own.grain && other != nil && other.window() >= own.window():
			own.become(other, grain, now)
		case grain < own.grain || grain > own.grain && (own.units() == 0 || len(own.log()) > maxResolution):
			own.become(own, grain, now)
		}
	}
}

// become makes the log one of the units of a log, which may be itself, in another grain. It makes units of
// the future units of now: the clock was set back, and nobody knows how long before now they were taken.
func (s *slidingLog) become(from *slidingLog, grain, now int64) {
	made := slidingLog{grain: grain, birth: now, views: s.views, other: s.other}
	for i := range made.views {
		v := &made.views[i]
		v.named = min(v.named, now)
		if v.gone -= s.before; from != s {
			v.gone = 0
		}
	}
	for i, r := range from.log() {
		if i == 0 { // what was taken before is not in it
			made.birth = min(max(from.birth, (r.at()-1)*from.grain), now)
		}
		at := min(ceilDiv(r.at()*from.grain, grain), ceilDiv(now, grain))
		made.add(at, from.through(i+1)-from.through(i))
	}
	*s = made
}

// leaves returns the moment at which a run leaves a window, as a limit counts that has such a part; 0: none
// but those of the log.
func (s *slidingLog) leaves(r run, window, part int64) int64 {
	moment := r.at() * s.grain
	if part > 0 {
		moment = ceilDiv(moment, part) * part
	}
	return moment + window
}

// noted returns how many units of the log a view has noted as gone; below 0 if they were fewer than the log
// has dropped.
func (s *slidingLog) noted(v *view) int64 { return int64(int32(v.gone - s.before)) }

// gone returns how many units of the log have left a window.
func (s *slidingLog) gone(window, part, now int64) (units int64) {
	for i := range s.views {
		if v := &s.views[i]; v.window == window {
			units = max(units, s.noted(v))
		}
	}
	log := s.log()
	if len(log) > 0 && s.leaves(log[0], window, part) <= now {
		runs := 1 + sort.Search(len(log)-1, func(i int) bool { return s.leaves(log[i+1], window, part) > now })
		units = max(units, s.through(runs))
	}
	return units
}

func (s *slidingLog) look(l Limit, now, need int64) (left, wait int64) {
	log, window, part := s.deciding(l), l.Window.Microseconds(), int64(0)
	if !log.counts(l) && l.Resolution > 0 {
		part = l.grain()
	}
	gone := log.gone(window, part, now)
	left = l.Max - log.units() + gone
	if left < need {
		runs, last := log.log(), gone+need-left // the last unit that has to leave
		i := sort.Search(len(runs), func(i int) bool { return log.through(i+1) >= last })
		wait = log.leaves(runs[i], window, part) - now
	}
	return left, wait
}

// take takes units in both logs. One for which no limit has been named for a window goes.
func (s *slidingLog) take(of []Limit, now, units int64, admitted bool) {
	if s.grain == 0 {
		s.align(of, now)
	}
	if admitted || len(s.log()) == 0 && s.other == nil {
		s.provide(of, now)
	}
	for log := s; log != nil; log = log.other {
		log.takeHere(of, now, units)
	}
	if s.other != nil && len(s.views) == 0 {
		*s = *s.other
	} else if s.other != nil && len(s.other.views) == 0 {
		s.other = nil
	}
}

// takeHere names the limits of an attempt and takes its units. It keeps the newest units, as many as the
// largest Max and a quarter, 50 at least: older ones decide nothing, unless so many are given back.
func (s *slidingLog) takeHere(of []Limit, now, units int64) {
	most := int64(0)
	for _, l := range of {
		most = max(most, l.Max)
		if s.counts(l) {
			s.name(l, now)
		}
	}
	units = min(units, most) // more would change nothing
	s.views = slices.DeleteFunc(s.views, func(v view) bool { return v.named+v.window <= now })
	drop := s.units()
	for i := range s.views {
		v := &s.views[i]
		gone := s.gone(v.window, 0, now)
		v.gone = s.before + uint32(gone)
		drop, most = min(drop, gone), max(most, int64(v.most))
	}
	drop = max(drop, s.units()+units-most-max(50, most/4))
	for len(s.log()) > 0 && s.through(1) <= drop {
		s.head++
	}
	s.before += uint32(drop)

	if len(s.log()) == 0 {
		s.birth = now
		for _, l := range of {
			if s.counts(l) {
				s.grain = l.grain()
			}
		}
	}
	s.birth = min(s.birth, now) // the clock may have been set back within a part
	at := ceilDiv(now, s.grain)
	if log := s.log(); len(log) > 0 {
		at = max(at, log[len(log)-1].at()) // a charge, before an attempt has found the clock set back
	}
	s.add(at, units)
}

// name notes that the log has to keep what a limit counts.
func (s *slidingLog) name(l Limit, now int64) {
	window := l.Window.Microseconds()
	for i := range s.views {
		if v := &s.views[i]; v.window == window && v.most == uint32(l.Max) {
			v.named = now
			return
		}
	}
	s.views = append(s.views, view{window, now, uint32(l.Max), s.before + uint32(s.gone(window, 0, now))})
}

func (s *slidingLog) giveBack(_ []Limit, _, stamp, units int64) {
	for log := s; log != nil; log = log.other {
		log.remove(stamp, units)
	}
}

// remove removes units that were taken at stamp.
func (s *slidingLog) remove(stamp, units int64) {
	log, at := s.log(), ceilDiv(stamp, s.grain)
	i := sort.Search(len(log), func(i int) bool { return log[i].at() >= at })
	if i == len(log) || log[i].at() != at || stamp < s.birth && !s.counts(Limit{}) {
		return // they have left, or the attempt's log was forgotten
	}
	begin, end := s.through(i), s.through(i+1)
	n := min(units, end-begin)
	for j := range log[i:] {
		log[i+j].sum -= uint32(n)
	}
	for j := range s.views {
		v := &s.views[j]
		if gone := s.noted(v); gone > end-n {
			v.gone -= uint32(min(n, gone-(end-n)))
		}
	}
	if begin+n == end {
		s.runs = slices.Delete(s.runs, int(s.head)+i, int(s.head)+i+1)
	}
}

func (s *slidingLog) full(l Limit) (full int64) {
	for ; s != nil; s = s.other {
		if n := len(s.runs); len(s.log()) > 0 {
			full = max(full, s.leaves(s.runs[n-1], max(l.Window.Microseconds(), s.window()), 0))
		}
	}
	return full
}

func (s *slidingLog) seed(l Limit, now, left, more, resets int64) {
	runs := s.runs[:0]
	if cap(runs) > 8 { // of an outage: it is no longer needed
		runs = nil
	}
	*s = slidingLog{runs: runs, grain: l.grain(), birth: now}
	s.add(ceilDiv(now+resets-l.Window.Microseconds(), s.grain), more)
	if taken := l.Max - left; taken > more {
		s.add(ceilDiv(now, s.grain), taken-more)
	}
}

// add appends units that were taken at this moment, the newest of the log. When the slice is full, it moves
// the log to its beginning, or to a new slice if this one is too small or far too large. So a log takes at
// most a quarter more than it holds, except for what it has dropped since.
func (s *slidingLog) add(at, units int64) {
	log, sum := s.log(), s.before+uint32(s.units()+units)
	if n := len(log); n > 0 && log[n-1].at() == at {
		log[n-1].sum = sum
		return
	}
	if len(s.runs) == cap(s.runs) {
		room := s.runs
		if want := len(log) + len(log)/4 + 2; cap(room) < want || cap(room) > 4*want {
			room = make([]run, len(log), want)
		}
		s.runs, s.head = room[:copy(room, log)], 0
	}
	s.runs = append(s.runs, newRun(at, sum))
}
