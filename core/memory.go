package core

import (
	"slices"
	"time"
)

// memory is the sliding window inside the process: what decides rate limits while Redis can not be asked. It decides as
// lua/sliding_window.lua does, by the process's clock, and counts what this process has let through only.
//
// It is bounded: beyond memoryKeys actors, the one not seen for the longest time is forgotten.
type memory struct {
	logs *shards[string, []memoryLog]
}

const memoryKeys = 1 << 16

// memoryLog is one limit's log of one actor: the moments of admission in microseconds, oldest first.
type memoryLog struct {
	window time.Duration
	grain  int64 // what moments are rounded up to
	stamps []int64
}

// round rounds a moment up, as the log counts it.
func (l memoryLog) round(now int64) int64 { return ceilDiv(now, l.grain) * l.grain }

// verdict is what a limiter's script returns: moment is the stamp when allowed, else how long to wait, in microseconds.
type verdict struct {
	allowed   bool
	limit     int // which one speaks
	remaining int64
	moment    int64
}

func newMemory() *memory {
	return &memory{logs: newShards[string, []memoryLog](memoryKeys)}
}

// take decides an attempt at now, in microseconds since 1970, and takes its units when it is allowed.
func (m *memory) take(key string, limits []Limit, cost, now int64) verdict {
	s := m.logs.of(key)
	s.Lock()
	defer s.Unlock()

	logs, _ := s.Get(key)
	current := make([]memoryLog, len(limits))
	var refused, allowed *verdict
	for i, l := range limits {
		current[i] = memoryLog{window: l.Window, grain: l.grain()}
		if at := slices.IndexFunc(logs, func(log memoryLog) bool { return log.window == l.Window && log.grain == l.grain() }); at >= 0 {
			current[i].stamps = logs[at].live(now)
		}
		stamps := current[i].stamps
		left := l.Max - int64(len(stamps))
		if left < cost {
			wait := max(stamps[0], stamps[cost-left-1]) + l.Window.Microseconds() - now
			if refused == nil || wait > refused.moment {
				refused = &verdict{limit: i, remaining: max(left, 0), moment: wait}
			}
		} else if allowed == nil || left-cost < allowed.remaining {
			allowed = &verdict{allowed: true, limit: i, remaining: left - cost, moment: now}
		}
	}
	if refused != nil {
		return *refused
	}
	for i := range current {
		for range cost {
			current[i].stamps = append(current[i].stamps, current[i].round(now))
		}
	}
	s.Add(key, current)
	return *allowed
}

// live returns the stamps that have not left the window: a unit leaves when its window is over and all before it have left.
func (l memoryLog) live(now int64) []int64 {
	for i, at := range l.stamps {
		if at+l.window.Microseconds() > now {
			return l.stamps[i:]
		}
	}
	return l.stamps[:0]
}

// giveBack takes units of one stamp out again, as far as they are still there.
func (m *memory) giveBack(key string, cost, stamp int64) {
	s := m.logs.of(key)
	s.Lock()
	defer s.Unlock()
	logs, ok := s.Get(key)
	if !ok {
		return
	}
	for i := range logs {
		removed := int64(0)
		logs[i].stamps = slices.DeleteFunc(logs[i].stamps, func(at int64) bool {
			if at != logs[i].round(stamp) || removed == cost {
				return false
			}
			removed++
			return true
		})
	}
}

// forget drops all that a key has used.
func (m *memory) forget(key string) {
	s := m.logs.of(key)
	s.Lock()
	defer s.Unlock()
	s.Remove(key)
}
