package lease

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/script"
)

// Why no window has more than Max: a unit counts as taken at the end of its part, so the log counts it for a
// window after it was handed out. Take all units that are handed out in some window, and let m be the moment
// at which the last of them was fetched. All of them still count at m, and the script saw to it then that no
// more than Max did.

const (
	// parts is the resolution of a limit without one. A unit counts for up to a 20th of the window longer.
	parts = 20
	// least is how many units a part must have at the full rate, so that some can be spared.
	least = 8
	// patience is the longest that a check waits for units that another one fetches.
	patience = 25 * time.Millisecond
)

// Guard is a [limit.SlidingWindow] whose units a process fetches ahead. It is safe for concurrent use.
type Guard struct {
	*limit.SlidingWindow
	one   known      // unless by returns the limits
	by    limit.Func // or nil
	ahead *limit.Ahead
	hands *hands
}

// New returns a [Guard] that is named name on e. A limit without a Resolution gets one of 20 parts. It panics
// when the name is invalid or already in use, or when the limit is invalid.
func New(e *core.Engine, name string, of limit.Limit) *Guard {
	g := &Guard{one: known{limits: byParts([]limit.Limit{of})}}
	return g.over(limit.NewSlidingWindow(e, name, g.one.limits[0]))
}

// NewBy is [New] with a function that returns the limits of each attempt. Where it returns several, the
// attempt asks Redis. Units that were fetched under another limit, such as one with another Max, are not
// handed out. It panics when the name is invalid or already in use, or when the function is nil.
func NewBy(e *core.Engine, name string, limits limit.Func) *Guard {
	g := &Guard{by: limits}
	if limits == nil {
		return g.over(limit.NewSlidingWindowBy(e, name, nil)) // which panics
	}
	return g.over(limit.NewSlidingWindowBy(e, name, g.limits))
}

func (g *Guard) over(w *limit.SlidingWindow) *Guard {
	g.SlidingWindow = w
	return g.holding(mostHands)
}

// holding sets for how many actors and resources the guard keeps what is in hand.
func (g *Guard) holding(most int) *Guard {
	g.hands = newHands(g, most)
	g.ahead = g.Ahead(g, g.hands.settle)
	return g
}

// byParts returns limits in which one that is alone has a resolution.
func byParts(limits []limit.Limit) []limit.Limit {
	if len(limits) == 1 && limits[0].Resolution == 0 {
		return []limit.Limit{limits[0].WithResolution(parts)}
	}
	return limits
}

// Override is [limit.SlidingWindow.Override]. Units in hand under another limit are not handed out.
func (g *Guard) Override(by func(own limit.Func) limit.Func) {
	own := g.by
	if own == nil {
		own = func(context.Context, core.Attempt) ([]limit.Limit, error) { return g.one.limits, nil }
	}
	g.by = by(own)
	g.SlidingWindow.Override(func(limit.Func) limit.Func { return g.limits })
}

// Accepts is [limit.SlidingWindow.Accepts].
func (g *Guard) Accepts(limits ...limit.Limit) error {
	return g.SlidingWindow.Accepts(byParts(limits)...)
}

// known is the limits of an attempt, for which the guard's function is asked once.
type known struct {
	limits []limit.Limit
	err    error
}

type knownKey struct{}

// with returns a context by which the window knows the limits.
func (k *known) with(ctx context.Context) context.Context {
	return context.WithValue(ctx, knownKey{}, k)
}

// limits is the function of the window.
func (g *Guard) limits(ctx context.Context, a core.Attempt) ([]limit.Limit, error) {
	if k, ok := ctx.Value(knownKey{}).(*known); ok {
		return k.limits, k.err
	}
	limits, err := g.by(ctx, a)
	return byParts(limits), err
}

// limitsOf returns the limits of an attempt.
func (g *Guard) limitsOf(ctx context.Context, a core.Attempt) *known {
	if g.by == nil {
		return &g.one
	}
	if g.one.limits == nil { // else it is no function of the application, which may take its time
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, g.Engine().Deadline())
		defer cancel()
	}
	k := &known{}
	if k.limits, k.err = g.limits(ctx, a); k.err == nil {
		k.err = ctx.Err() // the function may have ignored the deadline
	}
	return k
}

// lent returns the limit whose units the process fetches ahead for an attempt of that cost, if there is one.
func (k *known) lent(cost int64) (of limit.Limit, ok bool) {
	if k.err != nil || len(k.limits) != 1 {
		return of, false
	}
	of = k.limits[0]
	return of, of.Max >= least*of.Resolution && of.Max >= cost
}

// Phases implements [kit.Phased].
func (g *Guard) Phases() (self kit.Phased, joins bool) { return g, g.Engine().SharesCalls() }

// Check implements [core.Guard]. It decides by what the process has in hand, or by a call that fetches units:
// its own, or that of another caller, for which it waits for 25 ms at most. All calls together have the
// engine's deadline.
func (g *Guard) Check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	begun := time.Now()
	d, err := kit.InTurn(ctx, g.Begin(ctx, a, false, false))
	return d, g.Observe(ctx, "check", begun, d, err)
}

// Peek is [limit.SlidingWindow.Peek]. It counts what this process has in hand as left.
func (g *Guard) Peek(ctx context.Context, a core.Attempt) (core.Decision, error) {
	d, err := g.SlidingWindow.Peek(ctx, a)
	if h := g.hands.find(keyOf(&a)); h != nil && err == nil {
		h.count(&d, g.Engine().Now())
	}
	return d, err
}

// Reset is [limit.SlidingWindow.Reset]. This process discards what it has in hand, and other processes may
// still hand out what they have.
func (g *Guard) Reset(ctx context.Context, a core.Attempt) error {
	defer g.hands.drop(keyOf(&a)) // also after an error, since the server may have done it
	return g.SlidingWindow.Reset(ctx, a)
}

// Describe implements [kit.Describer].
func (g *Guard) Describe() kit.Description {
	d := g.SlidingWindow.Describe()
	d.Settings = append(d.Settings, kit.Detail{Name: "lease", Value: "true"})
	d.Ops = append(d.Ops, "give_back")
	for i := range d.Operations {
		switch o := &d.Operations[i]; o.Name {
		case "peek":
			o.Run = func(ctx context.Context, in kit.Input) (any, error) { return g.Peek(ctx, in.Attempt()) }
		case "reset":
			o.Run = func(ctx context.Context, in kit.Input) (any, error) { return nil, g.Reset(ctx, in.Attempt()) }
		}
	}
	return d
}

// key is what units are in hand for: a hash of the actor and the resource, whatever their length.
type key [sha256.Size]byte

func keyOf(a *core.Attempt) key {
	var room [128]byte
	text := binary.AppendUvarint(room[:0], uint64(len(a.Actor)))
	text = append(append(text, a.Actor...), a.Resource...)
	return sha256.Sum256(text)
}

// question is a check between its phases.
type question struct {
	g     *Guard
	known *known
	of    limit.Limit
	key   key
	d     core.Decision
}

// Begin implements [kit.Phased]. Units are fetched by End, whose callers wait for each other.
func (g *Guard) Begin(ctx context.Context, a core.Attempt, notFirst, notLast bool) kit.Prepared {
	if a.PrepareInPlace() != nil || !g.Engine().HasRedis() {
		return g.SlidingWindow.Begin(ctx, a, notFirst, notLast)
	}
	k := g.limitsOf(ctx, a)
	of, ok := k.lent(a.Cost)
	if !ok {
		return g.SlidingWindow.Begin(k.with(ctx), a, notFirst, notLast)
	}
	q := &question{g: g, known: k, of: of, key: keyOf(&a), d: core.Decision{Attempt: a}}
	h := g.hands.find(q.key)
	return kit.Prepared{Finisher: q, Batchable: h != nil && h.has(a.Cost, of, g.Engine().Now())}
}

// Drop implements [kit.Finisher].
func (*question) Drop() {}

// End implements [kit.Finisher].
func (q *question) End(ctx context.Context) (core.Decision, error) {
	g := q.g
	if h := g.hands.find(q.key); h != nil && q.handOut(h) {
		return q.d, nil
	}
	ctx, cancel := context.WithTimeout(q.known.with(ctx), g.Engine().Deadline())
	defer cancel()
	h := g.hands.get(q.key)
	switch {
	case h.join(ctx, min(patience, g.Engine().Deadline()/4)):
		defer h.asked()
		return q.fetch(ctx, h)
	case q.handOut(h):
		return q.d, nil
	}
	return kit.InTurn(ctx, g.SlidingWindow.Begin(ctx, q.d.Attempt, false, false))
}

// handOut decides the attempt by what is in hand. It reports false when that is not enough. The attempt is
// decided when the clock is read: a process that is stopped before finds its units over.
func (q *question) handOut(h *hand) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := q.g.Engine().Now()
	if !h.enough(q.d.Attempt.Cost, q.of, now) {
		return false
	}
	h.lot.Units -= q.d.Attempt.Cost
	h.came(now)
	q.g.ahead.Give(&q.d, h.lot, h.remaining+h.lot.Units)
	q.d.ResetAfter = max(h.resets.Sub(now), 0)
	return true
}

// fetch asks Redis about the attempt, and for units ahead. What was in hand and is over goes back in front of
// that, in the same trip. Where there are too few units for both, the attempt is asked about alone.
func (q *question) fetch(ctx context.Context, h *hand) (core.Decision, error) {
	over, ahead := h.next(q.d.Attempt.Cost, q.of, q.g.Engine().Now())
	d, err := q.ask(ctx, h, over, ahead)
	if ahead > 0 && err == nil && !d.Allowed {
		d, err = q.ask(ctx, h, limit.Lot{}, 0)
	}
	return d, err
}

func (q *question) ask(ctx context.Context, h *hand, over limit.Lot, ahead int64) (core.Decision, error) {
	g, a := q.g, q.d.Attempt
	a.Cost += ahead
	sent, drops := g.Engine().Now(), h.dropped()
	begun := g.SlidingWindow.Begin(ctx, a, false, false)
	if begun.Call != nil {
		begun.Call.Join = script.Join{} // a joined reply does not say for how long the units may be handed out
	}
	if over.Units > 0 {
		begun.Finisher = inFront{begun, g, over}
		begun.Call = nil
	}
	d, err := kit.InTurn(ctx, begun)
	if err != nil || !d.Allowed {
		d.Attempt.Cost -= ahead
		h.refused(d, err)
		return d, err
	}
	lot := g.ahead.Take(&d, ahead)
	back := h.hear(lot, q.of, sent, g.Engine().Now(), drops, &d)
	g.hands.giveBack(back)
	g.hands.arrange(part(q.of))
	d.Remaining += back.Units
	h.count(&d, g.Engine().Now())
	return d, nil
}

// inFront is a check in front of whose call units go back.
type inFront struct {
	kit.Prepared
	g    *Guard
	over limit.Lot
}

// End implements [kit.Finisher].
func (f inFront) End(ctx context.Context) (core.Decision, error) {
	f.g.giveBack(ctx, f.Call, f.over)
	return f.Prepared.End(ctx)
}

// giveBack gives units back to Redis, in front of a call if that is not nil. The observer hears of an error.
func (g *Guard) giveBack(ctx context.Context, behind *script.Call, lots ...limit.Lot) {
	d, begun := core.Decision{Guard: g.Name()}, time.Now()
	for _, t := range lots {
		d.Attempt.Cost += t.Units
	}
	_ = g.Observe(ctx, "give_back", begun, d, g.ahead.Return(ctx, behind, lots...))
}

func part(of limit.Limit) time.Duration {
	return (of.Window + time.Duration(of.Resolution) - 1) / time.Duration(of.Resolution)
}
