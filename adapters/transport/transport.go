package transport

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// Transport is an http.RoundTripper that asks guards before it sends. It is safe for concurrent use, and one
// Transport may serve many clients.
type Transport struct {
	base  http.RoundTripper
	rules []*mounted
}

// New returns a transport whose requests go through the rules, in their order, and then through base. A nil
// base is http.DefaultTransport. It panics on mistakes in the rules.
//
// All rules must allow a request, or it takes nothing. A unit counts as taken when its rule allows: put the
// rules that wait long first, and the limit that must be exact last.
func New(base http.RoundTripper, rules ...Rule) *Transport {
	if base == nil {
		base = http.DefaultTransport
	}
	return &Transport{base: base, rules: mount(rules)}
}

// CloseIdleConnections does what it does for the base, as http.Client wants it.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// LimitedError is the error of a request that was not sent, because a guard refused it or the partner has
// asked for a pause. An http.Client wraps it: use errors.As. It is a [core.Refused], too.
type LimitedError struct {
	// Refused is what the guard says. Its Reason says why, and its RetryAfter how long to wait until a request
	// can be sent; zero: waiting does not help.
	core.Refused
	// Paused reports that the partner has asked for it.
	Paused bool
}

// Error implements error.
func (e *LimitedError) Error() string {
	why := string(e.Reason)
	if e.Paused {
		why = "the partner has asked for a pause"
	}
	return fmt.Sprintf("transport: guard %q does not let the request out (%s): retry after %v", e.Guard, why,
		e.RetryAfter)
}

// Unwrap returns the [core.Refused].
func (e *LimitedError) Unwrap() error { return &e.Refused }

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	p := &passage{Context: r.Context()}
	if p.claims = p.room[:0]; len(t.rules) > 1 {
		p.claims = make([]claim, 0, len(t.rules))
	}
	sent := false
	defer func() { // also if a guard or the base panics
		if !sent {
			p.end(false)
			if r.Body != nil {
				_ = r.Body.Close() // its error is not ours to tell
			}
		}
	}()
	of := keyfuncs.Request{Request: r}
	for _, m := range t.rules {
		if m.When != nil && !m.When(r) {
			continue
		}
		if err := p.ask(m, &of); err != nil {
			return nil, err
		}
	}
	if err := context.Cause(r.Context()); err != nil {
		return nil, err
	}
	ctx := p.hold()
	sent = true // the base closes the body
	return p.send(ctx, t.base, r)
}

// ask asks the guard of a rule, or its policy for outages.
func (p *passage) ask(m *mounted, r *keyfuncs.Request) error {
	a, err := m.attempt(r)
	if err != nil {
		return fmt.Errorf("transport: guard %q: %w", m.Guard.Name(), err)
	}
	ctx := r.Context()
	if m.Most > 0 {
		within := newWithin(ctx, m.Most)
		defer within.stop()
		ctx = within
	}
	account := ""
	if m.pauses != nil {
		account = accountOf(&a)
		if err := m.pauses.wait(ctx, r.Context(), m, &a, account); err != nil {
			return err
		}
	}
	p.claims = append(p.claims, claim{rule: m, account: account})
	c := &p.claims[len(p.claims)-1]
	if !m.traits.KeepsOnFailure {
		err = c.place.Take()
	}
	if err == nil {
		c.decision, err = m.decide(ctx, r.Context(), a)
	}
	if err == nil && c.decision.Allowed {
		return nil
	}
	d := c.decision
	p.claims = p.claims[:len(p.claims)-1]
	c.place.Free()
	var refused *core.Refused
	switch {
	case err == nil:
		return limited(d)
	case errors.As(err, &refused):
		return limited(refused.Decision)
	case errors.Is(err, core.ErrInvalid), errors.Is(err, core.ErrDrained), m.OnOutage != core.FailOpen,
		r.Context().Err() != nil:
		return fmt.Errorf("transport: %w", err)
	}
	// It passes undecided. Its answer has the partner's word all the same.
	p.claims = append(p.claims,
		claim{rule: m, account: account, decision: core.Decision{Attempt: a}, over: true})
	return nil
}

func limited(d core.Decision) *LimitedError { return &LimitedError{Refused: core.Refused{Decision: d}} }

// attempt makes the attempt of a request.
func (m *mounted) attempt(r *keyfuncs.Request) (a core.Attempt, err error) {
	r.Logger = m.logger
	if a.Actor, err = m.Who(r); err == nil && m.What != nil {
		a.Resource, err = m.What(r)
	}
	if err == nil && m.Cost != nil {
		a.Cost, err = m.Cost(r.Request)
	}
	return a, err
}

// decide lets the guard decide, waiting until ctx ends. of is the context of the request. When there is less
// time left than a call to Redis may take, it checks first: a silent Redis would look like the end of the
// time.
func (m *mounted) decide(ctx, of context.Context, a core.Attempt) (core.Decision, error) {
	if m.waiter == nil || m.Most == 0 {
		return m.orLocal(of, a, m.Guard.Check, m.checkLocal)
	}
	said := core.Decision{Reason: core.ReasonLimited, RetryAfter: m.patience}
	if left(ctx) < m.patience {
		d, err := m.orLocal(of, a, m.Guard.Check, m.checkLocal)
		if err != nil || d.Allowed || d.RetryAfter <= 0 || d.RetryAfter > left(ctx) {
			return d, err
		}
		said = d
	}
	d, err := m.orLocal(ctx, a, m.waiter.Wait, m.waiter.WaitLocal)
	if err != nil && ctx.Err() != nil && of.Err() == nil { // Most is over
		said.Guard, said.Attempt = d.Guard, d.Attempt
		said.RetryAfter = max(said.RetryAfter, d.RetryAfter, time.Millisecond)
		return said, nil
	}
	return d, err
}

// left returns how long a context with a deadline still lasts.
func left(ctx context.Context) time.Duration {
	deadline, _ := ctx.Deadline()
	return time.Until(deadline)
}

func (m *mounted) checkLocal(ctx context.Context, a core.Attempt) (core.Decision, error) {
	return m.local.CheckLocal(ctx, a)
}

// orLocal decides, or, by the policy for outages, decides locally.
func (m *mounted) orLocal(
	ctx context.Context, a core.Attempt,
	decide, local func(context.Context, core.Attempt) (core.Decision, error),
) (core.Decision, error) {
	d, err := decide(ctx, a)
	var refused *core.Refused
	if err == nil || m.OnOutage != core.FailLocal || ctx.Err() != nil || errors.As(err, &refused) ||
		errors.Is(err, core.ErrInvalid) || errors.Is(err, core.ErrDrained) {
		return d, err
	}
	return local(ctx, a)
}
