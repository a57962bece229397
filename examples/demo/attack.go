package main

import (
	"context"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

// maxRequests bounds what an attacker sends to one limit.
const maxRequests = 2000

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
}

// laneResult is what the page shows of a lane in the end.
type laneResult struct {
	Lane     string  `json:"lane"`
	Admitted int     `json:"admitted"` // in all
	Refused  int     `json:"refused"`
	Worst    int     `json:"worst"`   // most admitted in any window
	FromMS   float64 `json:"from_ms"` // where this window begins
}

// dot is a request on the time line.
type dot struct {
	MS       float64 `json:"ms"`
	Admitted bool    `json:"admitted"`
}

type dots struct {
	Lane string `json:"lane"`
	Dots []dot  `json:"dots"`
	// Worst is the most admitted in any window so far, and FromMS where this window begins.
	Worst  int     `json:"worst"`
	FromMS float64 `json:"from_ms"`
}

type attackResult struct {
	Limit    int64        `json:"limit"`
	WindowMS int64        `json:"window_ms"`
	TotalMS  int64        `json:"total_ms"`
	Lanes    []laneResult `json:"lanes"`
}

// attackLimits lets the same attacker at three limits, at the same time: one request opens a window, a burst
// comes at its end, and polling goes on after it. Events: "begin" and "done" with an attackResult, "dots".
func attackLimits(ctx context.Context, in *instance, send func(string, any)) error {
	id := in.fresh("attacker")
	by := func(g core.Guard) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			d, err := g.Check(ctx, core.Attempt{Actor: id})
			return d.Allowed, err
		}
	}
	lanes := []*lane{
		{name: "naive", try: in.naiveWindow(id)},
		{name: "bucket", try: by(in.labs.bucket)},
		{name: "sliding", try: by(in.labs.sliding)},
	}
	window := in.sizes.Window
	result := attackResult{Limit: in.sizes.Limit, WindowMS: window.Milliseconds(),
		TotalMS: attackLength(window).Milliseconds()}
	send("begin", result)

	begin := time.Now()
	shown := make([]int, len(lanes))
	show := every(100*time.Millisecond, func() {
		for i, l := range lanes {
			if part := l.since(shown[i]); len(part) > 0 {
				shown[i] += len(part)
				worst, from := l.worst(window)
				send("dots", dots{l.name, part, worst, milliseconds(from)})
			}
		}
	})
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for _, l := range lanes {
		all.Go(func() {
			if err := l.attack(ctx, begin, window); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	show()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, l := range lanes {
		result.Lanes = append(result.Lanes, l.result(window))
	}
	send("done", result)
	return nil
}

// naiveWindow is the limiter of many articles: INCR, and PEXPIRE for the first one.
func (in *instance) naiveWindow(id string) func(context.Context) (bool, error) {
	key := in.gate.Key("naive-window", id)
	return func(ctx context.Context) (bool, error) {
		n, err := in.store.client.Incr(ctx, key).Result()
		if err == nil && n == 1 {
			err = in.store.client.PExpire(ctx, key, in.sizes.Window).Err()
		}
		return err == nil && n <= in.sizes.Limit, err
	}
}

func attackLength(window time.Duration) time.Duration { return window * 5 / 2 }

// attack is the attacker: it knows the window, and nothing else.
func (l *lane) attack(ctx context.Context, begin time.Time, window time.Duration) error {
	opened := time.Now()
	if _, err := l.request(ctx, begin); err != nil {
		return err
	}
	if err := pause(ctx, time.Until(opened.Add(window*9/10))); err != nil {
		return err
	}
	for range maxRequests {
		if time.Since(begin) > attackLength(window) {
			break
		}
		admitted, err := l.request(ctx, begin)
		if err == nil && !admitted {
			err = pause(ctx, window/100)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *lane) request(ctx context.Context, begin time.Time) (bool, error) {
	from := time.Since(begin)
	admitted, err := l.try(ctx)
	if err != nil {
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = append(l.sent, request{from, time.Since(begin), admitted})
	return admitted, nil
}

// since returns the requests from a number on, as dots.
func (l *lane) since(n int) []dot {
	l.mu.Lock()
	defer l.mu.Unlock()
	var part []dot
	for _, r := range l.sent[n:] {
		part = append(part, dot{milliseconds(r.from), r.admitted})
	}
	return part
}

func (l *lane) worst(window time.Duration) (int, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return worstWindow(l.sent, window)
}

func (l *lane) result(window time.Duration) laneResult {
	worst, from := worstWindow(l.sent, window)
	r := laneResult{Lane: l.name, Worst: worst, FromMS: milliseconds(from)}
	for _, s := range l.sent {
		if s.admitted {
			r.Admitted++
		} else {
			r.Refused++
		}
	}
	return r
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
