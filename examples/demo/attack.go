package main

import (
	"context"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
)

// request is one request of an attacker: sent after `from`, and answered before `until`, both counted from
// the beginning of the attack.
type request struct {
	from, until time.Duration
	admitted    bool
}

// lane is one limit under attack.
type lane struct {
	name string
	try  func(context.Context) (admitted bool, err error)

	mu   sync.Mutex
	sent []request
	told int // requests that the page knows
}

// attackLimits lets the same attacker at three limits, at the same time: one request opens a window, a burst
// comes at its end, and polling goes on after it. Events: "counts" and "done".
func attackLimits(ctx context.Context, in *instance, t *tape) error {
	id, window, worker := fresh("attacker"), in.sizes.Window, in.store.hire()
	defer worker.kill()
	attacked := limit.Per(in.sizes.Limit, window)
	by := func(g core.Guard) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			d, err := g.Check(ctx, core.Attempt{Actor: id})
			return d.Allowed, err
		}
	}
	lanes := []*lane{
		{name: "naive", try: in.naiveWindow(id)},
		{name: "bucket", try: by(limit.NewTokenBucket(worker.gate, "attacked-bucket", attacked))},
		{name: "sliding", try: by(limit.NewSlidingWindow(worker.gate, "attacked-window", attacked))},
	}
	counts := func(context.Context) (object, error) {
		all := object{}
		for _, l := range lanes {
			all[l.name] = l.counts(window)
		}
		return object{"lanes": all}, nil
	}
	begin := time.Now()
	return counting(ctx, t, 100*time.Millisecond, counts, func(ctx context.Context) error {
		return together(ctx, len(lanes), len(lanes), func(ctx context.Context, i int) error {
			return lanes[i].attack(ctx, begin, window)
		})
	})
}

// naiveWindow is the limiter of many articles: INCR, and PEXPIRE for the first one.
func (in *instance) naiveWindow(id string) func(context.Context) (bool, error) {
	key := in.gate.Key("naive-window", id)
	return func(ctx context.Context) (bool, error) {
		n, err := in.store.client.Incr(ctx, key).Result()
		if err == nil && n == 1 {
			err = in.store.client.PExpire(ctx, key, in.sizes.Window).Err()
		}
		return n <= in.sizes.Limit, err
	}
}

// attack is the attacker: it knows the window, and nothing else.
func (l *lane) attack(ctx context.Context, begin time.Time, window time.Duration) error {
	for first := true; time.Since(begin) < window*5/2; first = false {
		from := time.Since(begin)
		admitted, err := l.try(ctx)
		if err != nil {
			return err
		}
		l.mu.Lock()
		l.sent = append(l.sent, request{from, time.Since(begin), admitted})
		l.mu.Unlock()
		switch {
		case first:
			err = pause(ctx, window*9/10)
		case !admitted:
			err = pause(ctx, window/100)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// counts is how a lane stands: the most that were admitted in any window so far, when that window began, and
// the requests that are new, each with the time at which it was sent.
func (l *lane) counts(window time.Duration) object {
	l.mu.Lock()
	defer l.mu.Unlock()
	admitted, refused := []float64{}, []float64{}
	for _, r := range l.sent[l.told:] {
		if r.admitted {
			admitted = append(admitted, milliseconds(r.from))
		} else {
			refused = append(refused, milliseconds(r.from))
		}
	}
	l.told = len(l.sent)
	worst, from := worstWindow(l.sent, window)
	return object{"worst": worst, "from_ms": milliseconds(from), "admitted": admitted, "refused": refused}
}

// worstWindow returns the most requests that were certainly admitted within one window, and when the first of
// them was sent. When a request was admitted is only known to lie between sending and answer, so two of them
// count as within a window only if the answer to the later one came less than a window after the earlier one
// was sent. So a limit that keeps its promise never looks worse than it is, however slow the machine. The
// requests are in the order in which they were sent, one after the other.
func worstWindow(sent []request, window time.Duration) (most int, from time.Duration) {
	var admitted []request
	for _, r := range sent {
		if r.admitted {
			admitted = append(admitted, r)
		}
	}
	end := 0
	for i, first := range admitted {
		for end < len(admitted) && admitted[end].until-first.from < window {
			end++
		}
		if end-i > most {
			most, from = end-i, first.from
		}
	}
	return most, from
}

func milliseconds(d time.Duration) float64 { return float64(d.Round(10*time.Microsecond)) / 1e6 }
