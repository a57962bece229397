package limit

import (
	"cmp"
	"slices"
	"sort"
)

// slidingLog is a log of the units of an actor, as lua/limit/sliding_log.lua keeps it: a limit is a view of
// it. Its runs are in the order of their moments, none of which is in the future.
type slidingLog struct {
	runs   []run // the log begins at head
	views  []view
	other  *slidingLog // of the other kind, by parts or one by one; it has no other itself
	grain  int64       // unit of moments; 0: no attempt has come yet
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

// view is a window for which the log has units. It says which have left, since they do not come back when the
// clock is set back.
type view struct {
	window int64  // microseconds
	named  int64  // when others was asked for last, in milliseconds
	gone   uint32 // as run.sum
	own    uint32 // the Max of the last noted attempt; 0: it had no such window
	others uint32 // the largest Max of earlier attempts, if it is larger; 0: none
}

// ends returns until when the log has units for others, in microseconds.
func (v *view) ends() int64 { return ceilDiv(4*v.named+5*(v.window/1000), 4) * 1000 }

// mostOthers is the number of windows of other attempts that a log remembers.
const mostOthers = 8

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
// enough, or has parts that are short enough. The other one decides until an attempt is noted: then provide
// makes the limit's own of it.
func (s *slidingLog) deciding(l Limit) *slidingLog {
	own, other := s.of(l)
	if own == nil || other != nil && (own.window() < min(l.Window.Microseconds(), other.window()) ||
		l.grain() < own.grain && own.window() <= other.window()) {
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
			for i := range log.views {
				v := &log.views[i]
				v.named = min(v.named, ceilDiv(now, 1000))
			}
		}
	}
}

// making is the log in which limits of one kind count, the source to make it from if needed, and its grain.
type making struct {
	own, from *slidingLog
	grain     int64
}

// makings returns what limits that count one by one need, and those by parts; none: from is nil.
func (s *slidingLog) makings(of []Limit) (both [2]making) {
	for _, l := range of {
		m := &both[min(l.Resolution, 1)]
		if m.from == nil || l.grain() < m.grain {
			m.grain = l.grain()
		}
		m.own, _ = s.of(l)
		if d := s.deciding(l); m.from == nil || d != m.own {
			m.from = d
		}
	}
	return both
}

// provide gives the limits their logs, first the one that is exact. Each change of parts rounds up, so two
// releases in turn must not make it in turn: parts become longer only for room.
func (s *slidingLog) provide(of []Limit, now int64) {
	both := s.makings(of)
	s.show(of)
	if s.other != nil {
		s.other.show(of)
	}
	for _, m := range both {
		own, grain := m.own, m.grain
		if m.from == nil {
			continue
		}
		if own == nil {
			own = &slidingLog{grain: grain}
			s.other = own
		}
		switch {
		case m.from != own:
			own.become(m.from, min(own.grain, grain), now)
			own.show(of)
		case grain < own.grain || grain > own.grain && (own.units() == 0 || len(own.log()) > maxResolution):
			for _, l := range of { // a unit that has left stays so, also by other parts
				if v := own.view(l.Window.Microseconds()); own.counts(l) {
					v.gone = own.before + uint32(own.gone(v.window, 0, now))
				}
			}
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
		if v.gone -= s.before; from != s {
			v.gone = 0
		}
	}
	over := int64(0)
	if from != s {
		over = from.leftAll()
	}
	for i, r := range from.log() {
		if from.through(i+1) <= over {
			continue
		}
		if len(made.runs) == 0 { // earlier units are not in it
			made.birth = min((r.at()-1)*from.grain, now)
			if !from.counts(Limit{}) {
				made.birth = min(max(from.birth, made.birth), now)
			}
		}
		at := min(ceilDiv(r.at()*from.grain, grain), ceilDiv(now, grain))
		made.add(at, from.through(i+1)-max(from.through(i), over))
	}
	*s = made
}

// leaves returns the moment at which a run leaves a window, for a limit with such a part. 0: the parts of
// the log.
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

// gone returns how many units of the log have left a window. A unit noted as gone from all windows of its
// log counts for nobody again, even if a longer window is asked for.
func (s *slidingLog) gone(window, part, now int64) (units int64) {
	if v := s.view(window); v != nil {
		units = max(s.noted(v), 0)
	} else {
		units = s.leftAll()
	}
	log := s.log()
	if len(log) > 0 && s.leaves(log[0], window, part) <= now {
		runs := 1 + sort.Search(len(log)-1, func(i int) bool { return s.leaves(log[i+1], window, part) > now })
		units = max(units, s.through(runs))
	}
	return units
}

// leftAll returns how many units have left all windows of the log, as far as it is noted.
func (s *slidingLog) leftAll() (units int64) {
	if len(s.views) > 0 {
		units = s.units()
	}
	for i := range s.views {
		units = min(units, max(s.noted(&s.views[i]), 0))
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

// take takes units in both logs.
func (s *slidingLog) take(of []Limit, now, units int64, admitted bool) {
	if s.grain == 0 {
		s.align(of, now)
	}
	if admitted || len(s.log()) == 0 && s.other == nil {
		s.note(of, now, units, admitted)
		return
	}
	for log := s; log != nil; log = log.other {
		log.charge(of, now, units)
	}
}

// refused notes an attempt that was refused, if the log does not know its limits, or has not heard of them
// for a quarter of the window.
func (s *slidingLog) refused(of []Limit, now int64) {
	for _, l := range of {
		own, _ := s.of(l)
		if own == nil || !own.heard(l, now) {
			s.note(of, now, 0, false)
			return
		}
	}
}

func (s *slidingLog) heard(l Limit, now int64) bool {
	window := l.Window.Microseconds()
	return slices.ContainsFunc(s.views, func(v view) bool {
		return v.window == window && (int64(v.own) >= l.Max ||
			int64(v.others) >= l.Max && v.named*1000+window/4 > now)
	})
}

// note notes the limits of an attempt, and takes its units. A log of which nobody has asked for anything
// goes, and so does one without units.
func (s *slidingLog) note(of []Limit, now, units int64, admitted bool) {
	still := s.still(of, now)
	s.provide(of, now)
	for log := s; log != nil; log = log.other {
		log.noteHere(of, now, units, still, admitted)
	}
	goes := func(log *slidingLog) bool { return len(log.views) == 0 || log.units() == 0 }
	if s.other != nil && goes(s.other) {
		s.other = nil
	} else if s.other != nil && goes(s) {
		*s = *s.other
	}
}

// still reports whether the limits are those of the attempt that was noted last, and others stay as they are.
// Then only those that have left are counted.
func (s *slidingLog) still(of []Limit, now int64) bool {
	own, others, most := 0, 0, uint32(0)
	for i := range s.views {
		v := &s.views[i]
		most = max(most, v.own, v.others)
		if v.own > 0 {
			own++
		}
		if v.others > 0 {
			others++
			if v.ends() <= now {
				return false
			}
		}
	}
	if s.other != nil || others == 0 || own != len(of) ||
		s.counts(Limit{}) && s.units() >= int64(most)+2*spare(int64(most)) {
		return false
	}
	for _, l := range of {
		v := s.view(l.Window.Microseconds())
		if !s.counts(l) || v == nil || int64(v.own) != l.Max {
			return false
		}
	}
	return true
}

func (s *slidingLog) view(window int64) *view {
	for i := range s.views {
		if s.views[i].window == window {
			return &s.views[i]
		}
	}
	return nil
}

// show adds the views of the limits that the log does not have.
func (s *slidingLog) show(of []Limit) {
	for _, l := range of {
		if window := l.Window.Microseconds(); s.counts(l) && s.view(window) == nil {
			s.views = append(s.views, view{window: window, gone: s.before + uint32(s.leftAll())})
		}
	}
}

// spare is how many units a log keeps beyond the largest Max: others may be given back.
func spare(most int64) int64 { return max(50, most/4) }

// largest returns the largest Max for which the log has units.
func (s *slidingLog) largest() (most int64) {
	for i := range s.views {
		most = max(most, int64(s.views[i].own), int64(s.views[i].others))
	}
	return most
}

// noteHere notes the limits of an attempt and takes its units. A log that counts one by one keeps the newest
// units, as many as the largest Max and a quarter, 50 at least: older ones decide nothing, unless so many are
// given back. Units that were not admitted are charged: see charge.
func (s *slidingLog) noteHere(of []Limit, now, units int64, still, admitted bool) {
	if !still {
		s.remember(of, now)
	}
	for i := range s.views {
		if v := &s.views[i]; !still || v.own > 0 {
			v.gone = s.before + uint32(s.gone(v.window, 0, now))
		}
	}
	if !still {
		drop := s.bound()
		if most := s.largest(); s.counts(Limit{}) {
			units = min(units, most+spare(most))
			drop = max(drop, s.units()+units-most-spare(most))
		}
		s.drop(drop)
	}
	if !admitted {
		units = min(units, s.largest())
	}
	if len(s.views) == 0 || units == 0 {
		return
	}
	if len(s.log()) == 0 {
		s.birth = now
		for _, l := range of {
			if s.counts(l) {
				s.grain = l.grain()
			}
		}
	}
	s.birth = min(s.birth, now) // the clock may have been set back within a part
	s.add(ceilDiv(now, s.grain), units)
}

func (s *slidingLog) drop(units int64) {
	for len(s.log()) > 0 && s.through(1) <= units {
		s.head++
	}
	s.before += uint32(units)
}

// remember replaces the limits of the attempt that was noted last by those of one now. The former are those
// of others then, as far as they are larger.
func (s *slidingLog) remember(of []Limit, now int64) {
	for i := range s.views {
		v := &s.views[i]
		own := uint32(0)
		for _, l := range of {
			if s.counts(l) && l.Window.Microseconds() == v.window {
				own = uint32(l.Max)
			}
		}
		if v.ends() <= now || v.others <= own {
			v.others = 0
		}
		if v.others == 0 {
			v.named = 0
		}
		if v.own > own { // the clock may have been set back
			v.others, v.named = max(v.others, v.own), max(v.named, ceilDiv(now, 1000))
		}
		v.own = own
	}
}

// bound leaves out limits of others that count no unit, and makes the shortest ones a part of the next longer
// one. It returns how many units have left all views.
func (s *slidingLog) bound() int64 {
	var others []*view
	for i := range s.views {
		v := &s.views[i]
		if s.noted(v) >= s.units() {
			v.others = 0
		}
		if v.others > 0 {
			others = append(others, v)
		}
	}
	slices.SortFunc(others, func(a, b *view) int { return cmp.Compare(a.window, b.window) })
	for len(others) > mostOthers {
		short, long := others[0], others[1]
		long.others, long.named = max(long.others, short.others), max(long.named, short.named)
		short.others, others = 0, others[1:]
	}
	s.views = slices.DeleteFunc(s.views, func(v view) bool { return v.own == 0 && v.others == 0 })
	drop := s.units()
	for i := range s.views {
		drop = min(drop, max(s.noted(&s.views[i]), 0))
	}
	return drop
}

// charge takes units whether or not there is room for them, as many as the largest Max: more would change
// nothing.
func (s *slidingLog) charge(of []Limit, now, units int64) {
	most := s.largest()
	for _, l := range of {
		if s.counts(l) {
			most = max(most, l.Max)
		}
	}
	units = min(units, most)
	at := ceilDiv(now, s.grain)
	if log := s.log(); len(log) > 0 {
		at = max(at, log[len(log)-1].at()) // before an attempt has found the clock set back
	}
	s.add(at, units)
	if excess := s.units() - most - spare(most); s.counts(Limit{}) && excess > 0 {
		s.drop(excess)
	}
}

func (s *slidingLog) giveBack(_ []Limit, _, stamp, units int64) {
	if s.grain == 0 {
		return
	}
	for log := s; log != nil; log = log.other {
		log.remove(stamp, units)
	}
	if s.other == nil && len(s.log()) == 0 {
		*s = slidingLog{} // an actor of whom nothing counts is a new one
	}
}

// remove removes units that were taken at stamp.
func (s *slidingLog) remove(stamp, units int64) {
	log, at := s.log(), ceilDiv(stamp, s.grain)
	i := sort.Search(len(log), func(i int) bool { return log[i].at() >= at })
	if i == len(log) || log[i].at() != at || stamp < s.birth && !s.counts(Limit{}) {
		return // they are dropped, or the attempt's log was forgotten
	}
	end := s.through(i + 1)
	n := min(units, end-s.through(i))
	for j := range log[i:] {
		log[i+j].sum -= uint32(n)
	}
	for j := range s.views {
		v := &s.views[j]
		if gone := s.noted(v); gone > end-n {
			v.gone -= uint32(min(n, gone-(end-n)))
		}
	}
	if s.through(i) == end-n {
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
// most a quarter more than it holds, not counting units dropped since.
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
