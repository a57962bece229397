package operator

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

// Figures are what the guards of this process have decided in the last hour, for the pages: make one for each
// engine, as an observer of it, and pass it to [Options].Figures.
//
//	figures := new(operator.Figures)
//	gate := core.New(rdb, core.WithObserver(core.Observers(core.LogErrors(), figures)))
//
// The zero value is ready. A Figures is safe for concurrent use. It takes at most 8 KiB per guard for the
// counts, and 64 actors per guard, with names of at most 256 bytes.
type Figures struct {
	// NoActors turns off the list of the busiest actors. Set it before the first use.
	NoActors bool

	now    func() time.Time // nil: time.Now; tests set it
	guards sync.Map         // the name: *guardFigures
	known  atomic.Int64     // guards

	mu       sync.Mutex
	breakers map[string]breakerFigures // by node; breakersMost at most
}

const (
	guardsMost   = 1024 // names come from the program, but files of rules may bring new ones for ever
	breakersMost = 64
	minutes      = 60
	reasonsMost  = 12 // of each guard; the others count as "other"
	actorsMost   = 64 // of each guard
)

// The counts of a minute. Refusals follow, by their reasons.
const (
	countAllowed     = iota
	countReplayed    // the stored answer of an allowed attempt
	countShadow      // would have been refused, but only an observer asks
	countUnavailable // Redis did not answer: the outage policy decides
	countRefused
	counts = countRefused + reasonsMost
)

// latencies are the upper bounds of the durations of checks on Redis. Longer checks have the last place.
var latencies = [...]time.Duration{
	250 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
}

// guardFigures are the figures of one guard.
type guardFigures struct {
	minutes [minutes]minute
	rotate  sync.Mutex                           // held while a minute begins
	reasons [reasonsMost]atomic.Pointer[reasons] // the last one is for all others
	actors  actors
}

// reasons is the name of a count.
type reasons struct{ core.Reason }

// minute is the counts of one minute, in the place of the one an hour before.
type minute struct {
	number atomic.Int64 // minutes since 1970
	counts [counts]atomic.Uint32
	took   [len(latencies) + 1]atomic.Uint32
}

// breakerFigures say what became of a breaker.
type breakerFigures struct {
	Opened int64         // times
	Last   time.Time     // when it changed
	Took   time.Duration // how long it was open the last time
}

// Observe implements [core.Observer].
func (f *Figures) Observe(_ context.Context, e core.Event) {
	switch e.Op {
	case "check", "check_local", "check_wait", "refuse":
		if g := f.of(e.Guard); g != nil {
			g.note(&e, f.present(), !f.NoActors)
		}
	case "unban", "reset": // they are refused no more, also before they ask again
		if g := f.of(e.Guard); g != nil && e.Err == nil {
			g.actors.free(&e.Decision.Attempt)
		}
	case "breaker":
		f.noteBreaker(&e)
	}
}

func (f *Figures) present() time.Time {
	if f.now != nil {
		return f.now()
	}
	return time.Now()
}

// of returns the figures of a guard, or nil if there are too many guards.
func (f *Figures) of(guard string) *guardFigures {
	if g, ok := f.guards.Load(guard); ok {
		return g.(*guardFigures)
	}
	if f.known.Load() >= guardsMost {
		return nil
	}
	g, there := f.guards.LoadOrStore(guard, new(guardFigures))
	if !there {
		f.known.Add(1)
	}
	return g.(*guardFigures)
}

func (f *Figures) noteBreaker(e *core.Event) {
	if e.Breaker == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b, known := f.breakers[e.Breaker.Node]
	if !known && len(f.breakers) >= breakersMost {
		return
	}
	if f.breakers == nil {
		f.breakers = map[string]breakerFigures{}
	}
	b.Last = f.present()
	if e.Breaker.Open {
		b.Opened++
	} else {
		b.Took = e.Took
	}
	f.breakers[e.Breaker.Node] = b
}

// note counts a decision, or why there is none.
func (g *guardFigures) note(e *core.Event, now time.Time, actors bool) {
	d := &e.Decision
	m := g.minute(now)
	switch kind := e.ErrorKind(); {
	case kind == "invalid", kind == "canceled", kind == "" && !e.Decided() && e.Op == "check_wait":
		// the caller's doing
		return
	case kind != "":
		m.counts[countUnavailable].Add(1)
		return // the policy's decision follows, if there is one
	case d.Allowed && d.Replayed:
		m.counts[countReplayed].Add(1)
	case d.Allowed:
		m.counts[countAllowed].Add(1)
	case d.Attempt.Shadow:
		m.counts[countShadow].Add(1)
	default:
		m.counts[countRefused+g.placeOf(d.Reason)].Add(1)
	}
	if d.Source == core.SourceRedis && e.Op != "check_wait" { // else how long it has waited
		m.took[placeOf(e.Took)].Add(1)
	}
	if actors && d.Attempt.Actor != "" && !d.Attempt.Shadow {
		g.actors.note(d, now)
	}
}

// minute returns the counts of the present minute.
func (g *guardFigures) minute(now time.Time) *minute {
	number := now.Unix() / 60
	m := &g.minutes[number%minutes]
	if m.number.Load() != number {
		g.begin(m, number)
	}
	return m
}

func (g *guardFigures) begin(m *minute, number int64) {
	g.rotate.Lock()
	defer g.rotate.Unlock()
	if m.number.Load() == number {
		return // another one has begun it; a later number is from before the clock was set back
	}
	for i := range m.counts {
		m.counts[i].Store(0)
	}
	for i := range m.took {
		m.took[i].Store(0)
	}
	m.number.Store(number)
}

// placeOf returns the place of a reason among the counts.
func (g *guardFigures) placeOf(reason core.Reason) int {
	for i := range reasonsMost - 1 {
		known := g.reasons[i].Load()
		if known == nil {
			g.reasons[i].CompareAndSwap(nil, &reasons{reason})
			known = g.reasons[i].Load()
		}
		if known.Reason == reason {
			return i
		}
	}
	g.reasons[reasonsMost-1].CompareAndSwap(nil, &reasons{"other"})
	return reasonsMost - 1
}

func placeOf(took time.Duration) int {
	for i, most := range latencies {
		if took <= most {
			return i
		}
	}
	return len(latencies)
}

// hour is the last hour of a guard.
type hour struct {
	Allowed     uint64              `json:"allowed"`
	Replayed    uint64              `json:"replayed"`
	Shadow      uint64              `json:"shadow"`
	Unavailable uint64              `json:"unavailable"`
	Refused     uint64              `json:"refused"`
	By          []reasonCount       `json:"by,omitempty"` // of the refused, the most frequent first
	minutes     [minutes]minuteSums // the present one is the last
	took        [len(latencies) + 1]uint64
}

type reasonCount struct {
	Reason core.Reason `json:"reason"`
	Count  uint64      `json:"count"`
}

// minuteSums are the counts of a minute in the chart.
type minuteSums struct{ allowed, refused, unavailable uint64 }

// hour sums up the last hour.
func (g *guardFigures) hour(now time.Time) (h hour) {
	by := [reasonsMost]uint64{}
	present := now.Unix() / 60
	for i := range g.minutes {
		m := &g.minutes[i]
		ago := present - m.number.Load()
		if ago < 0 || ago >= minutes {
			continue
		}
		at := &h.minutes[minutes-1-ago]
		count := func(i int) uint64 { return uint64(m.counts[i].Load()) }
		h.Allowed += count(countAllowed)
		h.Replayed += count(countReplayed)
		h.Shadow += count(countShadow)
		h.Unavailable += count(countUnavailable)
		at.allowed, at.unavailable = count(countAllowed)+count(countReplayed), count(countUnavailable)
		for k := range by {
			n := count(countRefused + k)
			by[k] += n
			at.refused += n
		}
		h.Refused += at.refused
		for k := range m.took {
			h.took[k] += uint64(m.took[k].Load())
		}
	}
	for i, n := range by {
		if reason := g.reasons[i].Load(); n > 0 && reason != nil {
			h.By = append(h.By, reasonCount{reason.Reason, n})
		}
	}
	slices.SortStableFunc(h.By, func(a, b reasonCount) int {
		switch {
		case a.Count > b.Count:
			return -1
		case a.Count < b.Count:
			return 1
		}
		return 0
	})
	return h
}

// within returns a time within which a share of the checks on Redis were answered. It is zero if there were
// none, and negative if it is more than the longest of latencies.
func within(took [len(latencies) + 1]uint64, share float64) time.Duration {
	var all, sum uint64
	for _, n := range took {
		all += n
	}
	if all == 0 {
		return 0
	}
	for i, n := range took[:len(latencies)] {
		if sum += n; float64(sum) >= share*float64(all) {
			return latencies[i]
		}
	}
	return -1
}
