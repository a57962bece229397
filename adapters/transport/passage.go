package transport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"

	"github.com/gatehouse-go/gatehouse/core"
)

// passage is a request on its way to the partner and back.
type passage struct {
	context.Context // of the request, in which the passage is found

	claims []claim
	room   [1]claim
	trace  httptrace.ClientTrace
	traced atomic.Bool // the base tells the trace of its connections
	wrote  atomic.Bool // the header was sent, or part of it may have been

	body  io.ReadCloser // of the response
	stops []context.CancelFunc

	mu sync.Mutex // of the ends of claims
}

// claim is what the guard of a rule took for a request.
type claim struct {
	rule     *mounted
	account  string // for which the partner may ask for a pause
	decision core.Decision
	place    core.Place
	spent    int64
	told     bool
	over     bool // it is being settled, or nothing was taken
}

type passageKey struct{}

// Value implements context.Context.
func (p *passage) Value(key any) any {
	if key == (passageKey{}) {
		return p
	}
	return p.Context.Value(key)
}

// Spend says what a request has really cost, in the units of its guard, while the body of its response is
// read: for a price that stands in the body. ctx is that of resp.Request. Several calls add up. It reports
// whether it is not too late, which it is when the body was closed.
func Spend(ctx context.Context, guard string, units int64) bool {
	p, _ := ctx.Value(passageKey{}).(*passage)
	if p == nil || units < 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.claims {
		if c := &p.claims[i]; c.rule.Guard.Name() == guard && !c.over {
			c.spend(units)
			return true
		}
	}
	return false
}

// spend adds units to what the request has really cost.
func (c *claim) spend(units int64) {
	c.spent, c.told = min(c.spent+min(units, core.MaxAmount), core.MaxAmount), true
}

// send sends the request, with the context of hold.
func (p *passage) send(
	ctx context.Context, base http.RoundTripper, r *http.Request,
) (resp *http.Response, err error) {
	p.trace.GetConn = func(string) { p.traced.Store(true) }
	p.trace.WroteHeaders = func() { p.wrote.Store(true) }
	returned := false
	defer func() {
		if !returned { // the base panics, or Spent
			p.end(true)
			if resp != nil && resp.Body != nil {
				_ = resp.Body.Close() // its error is not ours to tell
			}
		}
	}()
	if resp, err = base.RoundTrip(r.WithContext(httptrace.WithClientTrace(ctx, &p.trace))); err != nil {
		returned = true
		if cause := context.Cause(ctx); ctx.Err() != nil && p.Err() == nil && cause != nil {
			err = errors.Join(cause, err) // a claim was lost
		}
		p.end(p.wrote.Load() || !p.traced.Load())
		return nil, err
	}
	for i := range p.claims {
		p.claims[i].hear(p, resp)
	}
	returned = true
	if len(p.claims) == 0 || resp.Body == nil || resp.Body == http.NoBody {
		p.end(true)
		return resp, nil
	}
	p.body = resp.Body
	if both, ok := resp.Body.(io.ReadWriteCloser); ok { // after 101 Switching Protocols
		resp.Body = &stream{body: body{p}, Writer: both}
	} else {
		resp.Body = &body{p}
	}
	return resp, nil
}

// hold keeps what was taken, such as permits, until the request ends. The context ends if one is lost.
func (p *passage) hold() context.Context {
	ctx := context.Context(p)
	for i := range p.claims {
		if c := &p.claims[i]; c.rule.holder != nil && !c.over {
			held, stop := c.rule.holder.Hold(ctx, c.decision)
			ctx, p.stops = held, append(p.stops, stop)
		}
	}
	return ctx
}

// hear takes the partner's word, and the price.
func (c *claim) hear(ctx context.Context, resp *http.Response) {
	if c.rule.Spent != nil {
		if units, ok := c.rule.Spent(resp); ok && units >= 0 {
			c.spend(units)
		}
	}
	if c.rule.pauses != nil {
		c.rule.pauses.hear(ctx, c, resp)
	}
}

// end settles the claims, each once.
func (p *passage) end(sent bool) {
	defer func() {
		for _, stop := range p.stops {
			stop()
		}
	}()
	p.endFrom(0, sent)
}

// endFrom settles the claims from i on, also if a guard of the application panics.
func (p *passage) endFrom(i int, sent bool) {
	defer func() {
		if i < len(p.claims) {
			p.endFrom(i+1, sent)
		}
	}()
	for ; i < len(p.claims); i++ {
		p.settle(&p.claims[i], sent)
	}
}

// read settles the claims whose real cost nobody reads from the body, which has ended.
func (p *passage) read() {
	for i := range p.claims {
		if c := &p.claims[i]; !c.rule.traits.Spends {
			p.settle(c, true)
		}
	}
}

// settle tells the guard how a request has ended, unless it was told.
func (p *passage) settle(c *claim, sent bool) {
	p.mu.Lock()
	over := c.over
	c.over = true
	p.mu.Unlock()
	if over {
		return
	}
	end := core.Rollback
	switch {
	case sent && c.told:
		end = core.CommitCost(c.spent)
	case sent:
		end = core.Commit
	}
	defer c.place.Free() // if the guard panics
	c.place.Settle(p, c.rule.Guard, c.decision, end)
}

// body is the body of a response whose claims end with it.
type body struct{ p *passage }

func (b *body) Read(to []byte) (int, error) {
	n, err := b.p.body.Read(to)
	if err != nil {
		b.p.read()
	}
	return n, err
}

func (b *body) Close() error {
	defer b.p.end(true)
	return b.p.body.Close()
}

// stream is a body that can be written to.
type stream struct {
	body
	io.Writer
}
