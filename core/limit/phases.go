package limit

import (
	"context"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/inflight"
)

// question is a check between its phases. Those of Check are used again.
type question struct {
	l      *limiter
	limits *limitSet // still to decide; nil: d and err are final
	d      core.Decision
	err    error
	call   script.Call
	key    [1]string // room for its keys
	under  inflight.Call
	asked  kit.Asked[string]
}

var questions = sync.Pool{New: func() any { return new(question) }}

// Begin implements [kit.Phased].
func (l *limiter) Begin(ctx context.Context, attempt core.Attempt, notFirst, notLast bool) kit.Prepared {
	q := &question{l: l}
	q.d.Attempt = attempt
	return q.begin(ctx, present(), notFirst, notLast)
}

func (q *question) begin(ctx context.Context, begun time.Time, notFirst, notLast bool) kit.Prepared {
	l, a := q.l, &q.d.Attempt
	b := kit.Prepared{Finisher: q}
	if q.limits, q.err = l.begin(ctx, &q.d); q.limits == nil {
		b.Batchable = q.d.Allowed
		return b
	}
	if !l.Engine().HasRedis() {
		return b
	}
	key, now := kit.TagOf(*a), l.Engine().Now()
	if r, ok := l.refusals.find(key, q.limits.limits, a.Cost, now); ok {
		r.answer(&q.d, now)
		q.limits = nil
		return b
	}
	q.call.Limit, q.call.Keys = l.Engine().Deadline(), q.key[:0]
	if l.by != nil {
		q.call.Limit -= time.Since(begun)
	}
	l.prepare(&q.call, asked{limits: q.limits, tag: key, cost: a.Cost})
	q.under = l.inFlight.Begin(key, a.Cost, notFirst, notLast, func(underWay int64) bool {
		return l.expects(a, q.limits, underWay)
	})
	q.call.After = q.under.Settled
	q.asked = l.refusals.ask(key, now)
	b.Call, b.Batchable = &q.call, q.under.Batchable
	return b
}

// expects reports whether the attempt will probably be allowed and leave an eighth of the limit, one unit
// at least. It counts the units left in the last answer, minus the units in flight. For an actor without an
// answer, the whole limit is left. It is true in a shadow, where nobody is refused.
func (l *limiter) expects(a *core.Attempt, limits *limitSet, underWay int64) bool {
	if a.Shadow {
		return true
	}
	v := l.local().decide(a, limits.limits, 0, l.micros(present()))
	return v.remaining-underWay-a.Cost >= max(limits.limits[v.binding].Max/8, 1)
}

// End implements [kit.Finisher].
func (q *question) End(ctx context.Context) (core.Decision, error) {
	switch {
	case q.limits == nil:
	case q.call.Script == nil: // an engine without Redis
		q.l.decideLocal(&q.d, q.limits, present(), false)
	default:
		q.err = q.decided(ctx)
	}
	return q.d, q.err
}

// decided reads what Redis has decided.
func (q *question) decided(ctx context.Context) error {
	defer q.under.End() // when it is known what the answer says
	value, err := q.l.replyTo(ctx, &q.call, q.limits, &q.d.Attempt, false)
	if err != nil {
		return err
	}
	return q.l.hear(&q.d, value, q.limits, q.asked)
}

// hear reads the reply to a check into d, and remembers what it says.
func (l *limiter) hear(
	d *core.Decision, value any, limits *limitSet, asked kit.Asked[string],
) error {
	v, err := readLimits(d, value, limits)
	if err != nil {
		return err
	}
	if d.Allowed {
		d.SetClaim(&taken{limitSet: limits, stamp: v.moment, rest: v.rest})
	}
	now := l.Engine().Now()
	l.last.note(asked.Key, limits.limits[v.binding], v, d.Attempt.Cost, l.micros(now))
	l.refusals.hear(asked, limits.limits, *d, now)
	return nil
}

// Drop implements [kit.Finisher].
func (q *question) Drop() { q.under.End() }
