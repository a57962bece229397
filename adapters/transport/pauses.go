package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/internal/backlog"
	"github.com/gatehouse-go/gatehouse/internal/bounded"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// pauses are what partners have asked for: for how long nothing is sent. A pause is a ban of the account, so
// that other processes know of it within a second, and operators can end it.
type pauses struct {
	bans *bans.Guard // nil: they hold in this process
	here *bounded.Map[string, time.Time]
}

// mostPaused is for how many accounts a process knows pauses by itself.
const mostPaused = 1 << 12

func newPauses(r *Rule) *pauses {
	s := &pauses{bans: r.Pauses, here: bounded.New[string, time.Time](mostPaused)}
	if e := engineOf(r.Guard); s.bans == nil && e != nil && e.HasRedis() {
		name := r.Guard.Name() + ".pauses"
		defer func() {
			if mistake := recover(); mistake != nil {
				panic(fmt.Sprintf("transport: no guard %q for pauses: %v; where two transports have a rule with guard "+
					"%q, make one bans.New and set it as Pauses of both", name, mistake, r.Guard.Name()))
			}
		}()
		s.bans = bans.New(e, name, bans.Options{})
	}
	return s
}

// engineOf returns the engine of a guard, or nil: a guard of an application may have none.
func engineOf(g core.Guard) *core.Engine {
	if own, ok := g.(interface{ Engine() *core.Engine }); ok {
		return own.Engine()
	}
	return nil
}

// accountOf is what a pause is for.
func accountOf(a *core.Attempt) string {
	if a.Resource == "" {
		return a.Actor
	}
	return keyfuncs.JoinTexts(a.Actor, a.Resource)
}

// wait waits for the end of a pause, or returns the error of a request that cannot wait so long. ctx ends
// with the rule's Most. of is the context of the request.
func (s *pauses) wait(ctx, of context.Context, m *mounted, a *core.Attempt, account string) error {
	for {
		left := s.left(of, account)
		if left <= 0 {
			return nil
		}
		deadline, ok := ctx.Deadline()
		if m.Most == 0 || ok && time.Until(deadline) < left {
			refused := limited(core.Decision{Guard: m.Guard.Name(), Attempt: *a, Reason: core.ReasonLimited,
				RetryAfter: max(left, time.Millisecond), Source: core.SourceRemembered})
			refused.Paused = true
			return refused
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			if of.Err() != nil {
				return context.Cause(of)
			}
		}
	}
}

// left returns how long the pause of an account still lasts.
func (s *pauses) left(ctx context.Context, account string) time.Duration {
	here := s.leftHere(account)
	if s.bans == nil {
		return here
	}
	d, err := s.bans.Check(ctx, core.Attempt{Actor: account})
	if err != nil || d.Allowed {
		return here
	}
	return max(here, d.RetryAfter)
}

func (s *pauses) leftHere(account string) time.Duration {
	p := s.here.Of(account)
	p.Lock()
	defer p.Unlock()
	until, ok := p.Get(account)
	if !ok {
		return 0
	}
	left := time.Until(until)
	if left <= 0 {
		p.Remove(account)
	}
	return left
}

// hear has the account pause, if the partner's answer says so.
func (s *pauses) hear(ctx context.Context, c *claim, resp *http.Response) {
	pause, err := pauseOf(resp, time.Now())
	if pause <= 0 && err == nil {
		return
	}
	if most := cmp.Or(c.rule.MaxPause, DefaultMaxPause); pause > most {
		err = errors.Join(err, fmt.Errorf("%w: a pause of %v is longer than MaxPause", errWord, pause))
		pause = most
	}
	if e := engineOf(c.rule.Guard); e != nil {
		d := core.Decision{Guard: c.rule.Guard.Name(), Attempt: c.decision.Attempt, RetryAfter: pause}
		e.Observe(ctx, core.Event{Guard: d.Guard, Op: "pause", Decision: d, Err: err})
	}
	if pause = pause.Truncate(time.Millisecond); pause <= 0 {
		return
	}
	until, news := s.lengthen(c.account, pause)
	if !news || s.bans == nil {
		return
	}
	s.tell(c.account, until)
}

// tell tells other processes of a pause, again and again while Redis does not answer, until the pause ends.
func (s *pauses) tell(account string, until time.Time) {
	if !backlog.Take() {
		return // too much else is pending: the pause holds in this process
	}
	try := func(ctx context.Context) error {
		left := time.Until(until) // Redis may have had others to answer
		if left <= 0 {
			return nil
		}
		err := s.bans.BanAtLeast(ctx, core.Attempt{Actor: account}, left+time.Millisecond-1)
		switch {
		case err == nil:
			s.forget(account, until) // from now on the ban decides, which an operator may end
		case errors.Is(err, core.ErrInvalid):
			return nil // as with an account that is too long
		}
		return err // observed
	}
	backlog.Add(s.bans.Engine(), &backlog.Job{Try: try, Lost: func(error) {}, Due: time.Now(), Until: until})
}

// lengthen has the account pause in this process, and reports whether that is news. Answers to requests that
// were under way together may come in any order, so a shorter pause does not replace a longer one.
func (s *pauses) lengthen(account string, pause time.Duration) (until time.Time, news bool) {
	until = time.Now().Add(pause)
	p := s.here.Of(account)
	p.Lock()
	defer p.Unlock()
	known, ok := p.Get(account)
	if news = !ok || known.Before(until.Add(-min(pause/10, time.Second/10))); news {
		p.Add(account, until)
	}
	return until, news
}

// forget ends a pause in this process, unless a longer one came meanwhile.
func (s *pauses) forget(account string, until time.Time) {
	p := s.here.Of(account)
	p.Lock()
	defer p.Unlock()
	if known, ok := p.Get(account); ok && !known.After(until) {
		p.Remove(account)
	}
}
