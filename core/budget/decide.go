package budget

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/limittext"
)

// Figure is what one limit of a path says.
type Figure struct {
	// Level is the name of the level, Path the path down to it, and Limit what the application says of it: where
	// an operator has decided otherwise (see [Guard.Override]), only Max tells it.
	Level string
	Path  []string
	Limit Limit
	// Max is how much may be used, including the overage of a period. If overage is metered, it is the Max of
	// the limit. Used is the amount that counts now.
	Max, Used int64
	// RetryAfter is how long this limit alone refuses the attempt. -1: waiting does not help, since the cost
	// exceeds Max. ResetAfter is the time until there is a unit more.
	RetryAfter, ResetAfter time.Duration
}

// Remaining returns how many units are left.
func (f Figure) Remaining() int64 { return max(f.Max-f.Used, 0) }

// taken is the claim of a decision.
type taken struct {
	keys    []string
	nodes   []node
	call    string
	stamp   int64 // microseconds of the reply, or of this process before it
	figures []Figure

	sequence int64 // of the last change then; after a loss of data others are greater
	binding  int   // index of the binding figure; -1: none

	mu     sync.Mutex // held while the attempt is settled
	ending *ending
}

// ending is how an attempt is settled. The first call decides it, and further calls repeat it.
type ending struct {
	units int64 // to give back; below 0, to charge
	call  string
	sent  time.Time // first, by the process's clock; zero: not yet
	done  bool
}

// remembered is for how long Redis knows the names of calls, less some time for a call on its way.
const remembered = 90 * time.Second

// unknown is the error of an ending that may have run so long ago that Redis has forgotten it.
func (e *ending) unknown(now time.Time) error {
	if e.sent.IsZero() || now.Sub(e.sent) < remembered {
		return nil
	}
	return fmt.Errorf("%w: an earlier try may have run, too long ago to tell", core.ErrUnsettled)
}

// Policies serves [core.Decision.Policies]. A policy has the name of its level, and the name of the limit
// if the level has several.
func (t *taken) Policies() []core.Policy {
	all, limits := make([]core.Policy, len(t.figures)), map[string]int{}
	for _, f := range t.figures {
		limits[f.Level]++
	}
	for i, f := range t.figures {
		all[i] = core.Policy{Max: f.Max, Window: f.Limit.Window, Name: f.Level, Remaining: f.Remaining(),
			ResetAfter: max(f.ResetAfter, f.RetryAfter), Binding: i == t.binding}
		switch {
		case limits[f.Level] < 2:
		case f.Limit.Period != nil:
			all[i].Name += "/period"
		default:
			all[i].Name += "/" + limittext.OfWindow(f.Limit.Window)
		}
	}
	return all
}

// Figures returns what all limits of the attempt's path say after the decision, the outermost first.
func Figures(d core.Decision) []Figure {
	if t, ok := core.ClaimOf[*taken](d); ok {
		return t.figures
	}
	return nil
}

// Binding returns the limit that binds: the one that refuses the attempt for longest, or else has the least
// left.
func Binding(d core.Decision) (f Figure, ok bool) {
	if t, is := core.ClaimOf[*taken](d); is && t.binding >= 0 {
		return t.figures[t.binding], true
	}
	return f, false
}

// Check implements [core.Guard]: it takes the cost at all levels, or nothing.
//
// The decision has the figures of the limit that binds: see [Binding]. RetryAfter is the time until the same
// attempt fits everywhere, if nobody takes anything before.
func (g *Guard) Check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	return g.Decide(ctx, "check", func() (core.Decision, error) {
		err := a.PrepareInPlace()
		d := core.Decision{Guard: g.Name(), Attempt: a}
		if err == nil {
			err = g.ask(ctx, &d, a.Cost)
		}
		return d, err
	})
}

// Peek answers as Check would for a cost of one, and takes nothing.
func (g *Guard) Peek(ctx context.Context, a core.Attempt) (core.Decision, error) {
	return g.Decide(ctx, "peek", func() (core.Decision, error) {
		a.Cost = 1
		err := a.PrepareInPlace()
		d := core.Decision{Guard: g.Name(), Attempt: a}
		if err == nil {
			err = g.ask(ctx, &d, 0)
		}
		return d, err
	})
}

func (g *Guard) ask(ctx context.Context, d *core.Decision, cost int64) error {
	if cost > mostUnits {
		return fmt.Errorf("%w: cost %d is too large", core.ErrInvalid, cost)
	}
	keys, nodes, err := g.nodesOf(d.Attempt)
	switch {
	case errors.Is(err, ErrUnknown):
		d.Reason = ReasonUnknown
		return nil
	case err != nil:
		return err
	}
	if err := kit.RoomToUndo(); err != nil {
		return err
	}
	ctx, cancel := g.Engine().WithinDeadline(ctx) // one deadline for up to two calls
	defer cancel()
	t := &taken{keys: keys, nodes: nodes, stamp: g.Engine().Now().UnixMicro(), binding: -1}
	for range 2 {
		t.call = rand.Text()[:6] // of each sending: a call that is undone must not be that which goes on
		value, err := g.send(ctx, t, cost, "0")
		if err != nil {
			if counted(nodes) && cost > 0 {
				g.UndoLater(err, func(ctx context.Context) error { return g.refund(ctx, t, cost, "undo") })
			}
			return err
		}
		again, err := g.read(d, t, value, cost)
		if err != nil || !again {
			return err
		}
	}
	d.Reason, d.RetryAfter = core.ReasonDayRolled, time.Second
	return nil
}

// counted reports whether a limit counts per period: then a unit that was taken by mistake stays for long.
func counted(nodes []node) bool {
	for _, n := range nodes {
		if len(n.limits) > 0 && n.limits[len(n.limits)-1].Period != nil {
			return true
		}
	}
	return false
}

// send takes the cost in the windows and periods of t's stamp.
func (g *Guard) send(ctx context.Context, t *taken, cost int64, force string) (any, error) {
	args := []any{cost, t.call, force, g.options.Keep.Milliseconds(), g.Engine().ScriptNow(time.Microsecond)}
	for _, n := range t.nodes {
		args = append(args, n.name, "!"+n.name)
	}
	for _, n := range t.nodes {
		windows, in, err := n.arguments(t.stamp / 1000)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", core.ErrInvalid, err)
		}
		args = append(args, windows, in)
	}
	return g.Engine().RunWithin(ctx, g.Engine().Deadline(), checkScript, t.keys, args...)
}

// read fills in the decision. It reports whether a period was another one than the process thought.
func (g *Guard) read(d *core.Decision, t *taken, value any, cost int64) (again bool, err error) {
	r := script.ReadReply(value, 3, 128)
	reason, stamp := r.Text(), r.Number()
	t.stamp, t.sequence = stamp, r.Number()
	d.Source = core.SourceRedis
	switch reason {
	case "period":
		return true, r.Err
	case "paused":
		d.Reason, d.RetryAfter = ReasonPaused, r.Duration(time.Microsecond)
		return false, r.Err
	case "gone":
		d.Reason = core.ReasonGone
		return false, r.Err
	}
	if d.Allowed, d.Reason = reason == "ok", core.ReasonOK; !d.Allowed {
		cost = 0
	}
	g.readFigures(r, t, cost)
	if r.Err != nil {
		return false, r.Err
	}
	t.bind(d.Allowed)
	t.tell(d)
	d.SetClaim(t)
	return false, nil
}

// readFigures reads the figures of all limits, after the cost, and the alerts.
func (g *Guard) readFigures(r *script.Reply, t *taken, cost int64) {
	for _, n := range t.nodes {
		for _, l := range n.limits {
			f := Figure{Level: g.options.Levels[n.level], Path: n.path, Limit: l}
			f.Max, f.Used = r.Number(), r.Number()
			wait := r.Number()
			f.RetryAfter, f.ResetAfter = script.DurationOf(wait, time.Microsecond), r.Duration(time.Microsecond)
			if wait < 0 {
				f.RetryAfter = -1
			}
			f.Used += cost
			t.figures = append(t.figures, f)
		}
	}
	for r.More() {
		alert := Alert{Path: t.nodes[max(min(int(r.Number()), len(t.nodes)), 1)-1].path, Percent: int(r.Number()),
			Max: r.Number()}
		if g.options.Alert != nil && r.Err == nil {
			g.Later(func(ctx context.Context) { g.options.Alert(ctx, alert) })
		}
	}
}

// tell puts the figures of the binding limit into the decision.
func (t *taken) tell(d *core.Decision) {
	if t.binding < 0 {
		return
	}
	f := t.figures[t.binding]
	d.Limit, d.Remaining, d.ResetAfter = f.Max, f.Remaining(), f.ResetAfter
	if d.Window = f.Limit.Window; f.Limit.Period != nil {
		span, _ := f.Limit.Period.At(t.stamp / 1000) // it was asked before
		d.Window = script.DurationOf(span.Ends-span.Begins, time.Millisecond)
	}
	if d.Allowed {
		return
	}
	d.Reason, d.RetryAfter, d.ResetAfter = core.ReasonLimited, max(f.RetryAfter, 0), max(f.RetryAfter, 0)
	if f.RetryAfter < 0 {
		d.Reason = core.ReasonOverLimit
	} else if f.Limit.Period != nil {
		d.Reason = core.ReasonQuota
	}
}

// bind finds the binding limit. A limit against which waiting does not help comes first. A limit that
// refuses nothing binds only if there is no other.
func (t *taken) bind(allowed bool) {
	before := func(a, b Figure) bool {
		switch {
		case allowed && (a.Limit.Overage == Metered) != (b.Limit.Overage == Metered):
			return b.Limit.Overage == Metered
		case allowed:
			return a.Remaining() < b.Remaining()
		case a.RetryAfter < 0 || b.RetryAfter < 0:
			return a.RetryAfter < 0 && b.RetryAfter >= 0
		}
		return a.RetryAfter > b.RetryAfter
	}
	for i, f := range t.figures {
		if t.binding < 0 || before(f, t.figures[t.binding]) {
			t.binding = i
		}
	}
}
