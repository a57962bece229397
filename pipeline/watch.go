package pipeline

import (
	"bufio"
	"errors"
	"net"
	"net/http"

	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// ErrRefused is the error that a handler gets when it writes after the rules have refused the request in
// its place, because a claim could not be confirmed. Write, Flush of http.ResponseController and Hijack
// return it. The client has got its response, so the handler can only stop. While an idempotency rule keeps
// the handler's response for repetitions, Write succeeds.
var ErrRefused = errors.New("gatehouse: the request was refused because its claim could not be confirmed")

// heldMost is how many bytes of a response are held back at most.
const heldMost = 1 << 20

// Watch adds the RateLimit fields to the header of w, as SetHeaders does, and returns the writer for the
// handler. The writer judges, confirms and records the response before passing it on to w, and has the same
// optional interfaces as w (flush, hijack). After Leave it only passes on. If no rule depends on the
// response, it only exposes the fields to pages of other origins (see [answers.Headers]) and keeps shared
// caches from storing tokens (see [answers.TokenHeader]). If there is also no Origin in the request and no
// token, Watch returns w itself.
//
// If the innermost writer, by Unwrap, cannot flush, Watch takes it for a buffer like that of
// http.TimeoutHandler, which sends the response after the handler has returned. Until then another handler
// may answer instead, so the response is held back and decided in Leave. A response of more than 1 MiB is
// decided when it reaches that size, and then passed on to w.
//
// A hijacked connection counts as answered with 200. It is confirmed before it is handed over. If that fails,
// Hijack returns ErrRefused, and the client gets the refusal.
func (p *Passage) Watch(w http.ResponseWriter) http.ResponseWriter {
	header := w.Header()
	if !p.pipeline.settles {
		p.SetHeaders(header)
		if !p.Watches() {
			return w
		}
		exposing := &beginning{tell: func(int) {
			p.SetHeaders(header)
			p.fields.KeepTokens(header)
			answers.Expose(header)
		}}
		p.response = &response{exposing: exposing}
		return watched(w, exposing)
	}
	p.response = &response{base: w, header: header, before: header.Clone(), fields: p.fields, buffer: buffers(w)}
	p.SetHeaders(header)
	if p.recording != nil {
		p.recording.watch(header)
	}
	return watched(w, p)
}

// WatchHints is Watch for a handler that empties the header after an informational answer.
func (p *Passage) WatchHints(w http.ResponseWriter) http.ResponseWriter {
	if p.pipeline.settles || p.Watches() {
		return p.Watch(w)
	}
	header := w.Header()
	p.SetHeaders(header)
	return watched(w, &beginning{tell: func(int) { p.fields.Set(header) }})
}

// Watches reports whether Watch returns another writer than it gets: a rule depends on the response, a page
// of another origin may read it, or it has a token. If not, an adapter may call SetHeaders instead.
func (p *Passage) Watches() bool {
	return p.pipeline.settles || len(p.from.Header["Origin"]) > 0 || p.fields.HasTokens()
}

// informed is for the watched writer.
func (p *Passage) informed() { p.response.hinted = true }

// informs is for the watched writer: a held answer's informational ones are lost.
func (p *Passage) informs() bool { return p.left || !p.response.buffer && p.phase != phaseRefused }

// passes is for the watched writer.
func (p *Passage) passes(n int) bool { return p.begin(http.StatusOK) || p.overflows(n) }

// records is for the watched writer.
func (p *Passage) records() *recording { return p.recording }

// stopped is for the watched writer.
func (p *Passage) stopped() error {
	if p.phase == phaseRefused {
		return ErrRefused
	}
	return nil
}

// hijack hands the connection over after the claims have been confirmed.
func (p *Passage) hijack(take takeOver) (net.Conn, *bufio.ReadWriter, error) {
	open := p.phase == phaseOpen && !p.left
	if open && p.response.buffer {
		return nil, nil, http.ErrNotSupported
	}
	p.recordHijack(open)
	if !p.begin(http.StatusOK) {
		p.recordHijack(false)
		return nil, nil, ErrRefused
	}
	conn, rw, err := take()
	if open && err != nil {
		p.recordHijack(false)
		p.reopen()
	}
	return conn, rw, err
}

// keep takes a part of the response that is not sent: it is held back, or recorded for repetitions only.
func (p *Passage) keep(b []byte) (int, error) {
	if p.phase == phaseHeld {
		p.response.held.body = append(p.response.held.body, b...)
		return len(b), nil
	}
	if p.keepsAnswer() {
		if p.recording.wrote(b, nil); !p.recording.broken {
			return len(b), nil
		}
	}
	return 0, ErrRefused
}

// keepsAnswer reports whether the handler's response will be kept although the client got a refusal.
func (p *Passage) keepsAnswer() bool {
	return p.anyClaim(func(c *claim) bool { return c.state() == stateUnsure })
}

// overflows reports whether a response that was held back is sent from now on, because n more bytes would
// exceed heldMost. It is decided then.
func (p *Passage) overflows(n int) bool {
	if p.phase != phaseHeld || len(p.response.held.body)+n <= heldMost {
		return false
	}
	if p.scope.Err() != nil {
		p.unanswered()
		return false
	}
	return p.release(false)
}
