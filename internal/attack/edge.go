package attack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/dunglas/httpsfv"
)

const (
	// edgePolls is the number of polls after the burst that an attack on the edge wants, and edgePollsLeast what
	// it needs to meet the beginning of the next window.
	edgePolls, edgePollsLeast = 400, 40
	// windowLeast is the shortest window that an attack over a network can tell from noise.
	windowLeast = 100 * time.Millisecond
)

// Edge is what an attack on the edge of a window has found.
type Edge struct {
	// Limit and Window are the limit that was attacked, and Source where it was known from: "flag" or
	// "RateLimit-Policy".
	Limit  int64         `json:"limit"`
	Window time.Duration `json:"window_ns"`
	Source string        `json:"source"`
	// Worst is the largest number of requests that were certainly admitted in one window.
	Worst int `json:"worst"`
}

// Holds reports whether no window has admitted more than the limit.
func (e Edge) Holds() bool { return int64(e.Worst) <= e.Limit }

// Edge attacks a limit as those do who know when its window ends: a request opens the window, a burst comes
// after nine tenths of it, and whenever requests are refused it polls until two and a half windows have
// passed. A limit of 0 is one to read from the field RateLimit-Policy of the first answer. The error says why
// the attack could not be made or did not come to its end; what was found until then is returned too.
func (a *Attacker) Edge(ctx context.Context, limit int64, window time.Duration) (e Edge, err error) {
	e = Edge{Limit: limit, Window: window, Source: "flag"}
	if limit > 0 { // before anything is sent
		if err := a.fits(e); err != nil {
			return e, err
		}
	}
	first, err := a.send(ctx, nil)
	if err != nil {
		return e, err
	}
	if limit == 0 {
		if e.Limit, e.Window, err = policyOf(first.Header); err != nil {
			return e, err
		}
		e.Source = "RateLimit-Policy"
		if err := a.fits(e); err != nil {
			return e, err
		}
	}
	admitted, err := a.burst(ctx, first, e)
	if first.Admitted {
		admitted = append(admitted, first.Admission)
	}
	e.Worst = MostIn(e.Window, admitted)
	return e, err
}

// fits checks that the attack on this limit is within the bounds.
func (a *Attacker) fits(e Edge) error {
	needed := 2*e.Limit + 1 + edgePollsLeast
	switch lasts := e.Window * 5 / 2; {
	case e.Window < windowLeast:
		return fmt.Errorf("%w: a window of %v is too short: the least is %v", ErrRefused, e.Window, windowLeast)
	case lasts > MostDuration:
		return fmt.Errorf("%w: an attack on a window of %v takes %v, more than the most of %v: attack a limit "+
			"with a shorter window", ErrRefused, e.Window, lasts, MostDuration)
	case lasts > a.Duration:
		return fmt.Errorf("%w: an attack on a window of %v takes %v: allow it with -for %[3]v", ErrRefused,
			e.Window, lasts)
	case needed > MostRequests:
		return fmt.Errorf("%w: an attack on a limit of %d takes %d requests, more than the most of %d: lower the "+
			"limit in your staging", ErrRefused, e.Limit, needed, MostRequests)
	case needed > int64(a.Requests):
		return fmt.Errorf("%w: an attack on a limit of %d takes %d requests: allow it with -n %[3]d", ErrRefused,
			e.Limit, needed)
	}
	return nil
}

// burst sends the requests after the first one.
func (a *Attacker) burst(ctx context.Context, first Answer, e Edge) (admitted []Admission, err error) {
	begin, end := first.After.Add(e.Window*9/10), first.After.Add(e.Window*5/2)
	ctx, cancel := context.WithDeadline(ctx, first.After.Add(a.Duration))
	defer cancel()
	if err := wait(ctx, time.Until(begin)); err != nil {
		return nil, err
	}
	polls := min(edgePolls, int64(a.Requests)-2*e.Limit-1)
	poll := time.NewTicker(end.Sub(begin) / time.Duration(polls))
	defer poll.Stop()
	var mu sync.Mutex
	err = a.each(ctx, func(ctx context.Context) error {
		for time.Now().Before(end) {
			answer, err := a.send(ctx, nil)
			switch {
			case errors.Is(err, ErrNoRequestsLeft):
				return nil // bounded
			case err != nil && !a.goesOn(ctx, err):
				return err
			case answer.Admitted:
				mu.Lock()
				admitted = append(admitted, answer.Admission)
				mu.Unlock()
				continue
			}
			select {
			case <-poll.C: // one worker gets each
			case <-time.After(time.Until(end)):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	return admitted, err
}

// each runs f in as many goroutines as the attack has, and returns the first error.
func (a *Attacker) each(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for range a.Concurrency {
		all.Go(func() {
			if err := f(ctx); err != nil {
				cancel(err) // the first counts
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// policyOf returns the limit with the shortest window that an answer tells of
// (draft-ietf-httpapi-ratelimit-headers, section 3).
func policyOf(h http.Header) (limit int64, window time.Duration, err error) {
	list, err := httpsfv.UnmarshalList(h.Values("RateLimit-Policy"))
	if err != nil {
		return 0, 0, fmt.Errorf("%w: the field RateLimit-Policy cannot be read: give the limit, as in "+
			"-limit 100/min", ErrRefused)
	}
	for _, member := range list {
		item, ok := member.(httpsfv.Item)
		if !ok {
			continue
		}
		q, seconds := parameter(item, "q"), parameter(item, "w")
		w := time.Duration(seconds) * time.Second
		if q > 0 && seconds > 0 && seconds < int64(MostDuration/time.Second)*24*366 && (window == 0 || w < window) {
			limit, window = q, w
		}
	}
	if limit == 0 {
		return 0, 0, fmt.Errorf("%w: the answer names no limit in RateLimit-Policy: give it, as in -limit 100/min",
			ErrRefused)
	}
	return limit, window, nil
}

func parameter(item httpsfv.Item, name string) int64 {
	value, _ := item.Params.Get(name)
	n, _ := value.(int64)
	return n
}
