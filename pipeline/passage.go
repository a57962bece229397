package pipeline

import (
	"context"
	"net/http"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
	"github.com/gatehouse-go/gatehouse/pipeline/internal/mounted"
)

// Passage is a request that all rules have let through, until it has been answered. Its methods are for
// adapters. They must not be called concurrently.
//
// The final status of the response, just before it is sent, alone decides whether a claim is kept or has
// failed: see Rule.Failed. A claim that is kept and needs a confirmation (core.Traits.Confirms) is
// confirmed before the header is sent. If that fails, the client gets a refusal instead of the handler's
// response: gone, unconfirmed or unavailable. After the first byte of the response nothing changes these
// decisions. Claims that failed are given back when the adapter leaves the passage.
type Passage struct {
	scope    scope
	settling detached         // the request's context without its cancellation
	from     keyfuncs.Request // a copy, so that the adapter's costs no allocation
	pipeline *Pipeline
	outer    *Passage       // the passage of the middleware around this one
	fields   answers.Fields // read also by a handler that outlasts its http.TimeoutHandler
	claims   []claim        // they do not move

	response  *response // from Watch on, if it is watched; else unwatched
	recording *recording

	status  uint16 // decides about the claims; 16 bits, since each request has a passage
	phase   phase
	left    bool
	judging bool // a Rule.Failed is running
	aborted bool // the handler did not return
	nobody  bool // a passage inside this one has found that nobody answered

	deferred bool // a passage inside this one has deferred the request, so that the handler does not run
}

// response is what a passage has to know of a response that is watched. All but exposing is for rules that
// depend on how it ends.
type response struct {
	base   http.ResponseWriter // the writer behind the watched one; nil: Watch was not called
	header http.Header         // the header of the response
	before http.Header         // the header before the handler ran
	fields answers.Fields      // of the passage, as they are in the header
	buffer bool                // the base is a buffer: it sends the response after the handler has returned
	held   held                // the response that waits for that
	hinted bool                // an informational answer was sent, after which the header may have been emptied
	heard  int                 // the status of a refusal that replaced the handler's response

	exposing *beginning // exposes the fields to a page of another origin, if no rule settles
}

// unwatched is the response of passages that need not see it. It stays zero.
var unwatched response

// phase is the progress of the response.
type phase uint8

const (
	phaseOpen    phase = iota // nothing has been written
	phaseHeld                 // the handler has begun its response, which is held back
	phaseSent                 // the claims are decided, and the handler's response is sent
	phaseRefused              // a refusal has replaced the handler's response
)

// held is a response that is held back.
type held struct {
	status int
	header http.Header
	body   []byte
}

// lone is the passage through a single rule, with room for its claim.
type lone struct {
	Passage
	room [1]claim
}

// newPassage begins the passage of a request.
func newPassage(p *Pipeline, r *keyfuncs.Request) *Passage {
	var passage *Passage
	if len(p.rules) == 1 { // one allocation
		l := new(lone)
		passage, l.claims = &l.Passage, l.room[:0]
	} else {
		passage = new(Passage)
	}
	passage.settling, passage.from, passage.pipeline, passage.response = detached{r.Request}, *r, p, &unwatched
	ctx := r.Context()
	passage.scope.Context, passage.scope.passage = ctx, passage
	passage.outer, _ = ctx.Value(passageKey{}).(*Passage)
	return passage
}

// newClaim returns a claim for a rule whose guard is about to be asked.
func (p *Passage) newClaim(rule *mounted.Rule) *claim {
	if p.claims == nil {
		p.claims = make([]claim, 0, len(p.pipeline.rules))
	}
	p.claims = p.claims[:len(p.claims)+1]
	c := &p.claims[len(p.claims)-1]
	c.rule = rule
	return c
}

// all goes through the claims of guards that have allowed the request.
func (p *Passage) all(yield func(*claim) bool) {
	for i := range p.claims {
		if c := &p.claims[i]; c.state() != stateAsked && !yield(c) {
			return
		}
	}
}

// anyClaim reports whether any claim is of this kind.
func (p *Passage) anyClaim(is func(*claim) bool) bool {
	for c := range p.all {
		if is(c) {
			return true
		}
	}
	return false
}

// passageKey is the key of the innermost passage in a request's context.
type passageKey struct{}

// scope is the context of the handler.
type scope struct {
	context.Context // of the request
	passage         *Passage
}

// Value returns the passage, or a value of the request's context.
func (s *scope) Value(key any) any {
	if _, ok := key.(passageKey); ok {
		return s.passage
	}
	return s.Context.Value(key)
}

// Context returns the request's context with the decisions: see [Decision] and [Take].
func (p *Passage) Context() context.Context { return &p.scope }

// recordHijack records whether the connection is hijacked, if the response is recorded.
func (p *Passage) recordHijack(taken bool) {
	if p.recording != nil {
		p.recording.taken = taken
	}
}

// recordHeader records the header that is about to be sent, if the response is recorded.
func (p *Passage) recordHeader() {
	if p.recording != nil {
		p.recording.begin()
	}
}
