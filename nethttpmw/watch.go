package nethttpmw

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"time"
)

// ErrRefused is what a handler hears that goes on to write its answer when the rules have answered in its place, because what it was
// about to promise could not be confirmed: from Write, from Flush by http.ResponseController and from Hijack. The client has had its
// answer, so there is nothing to do but to stop. As long as an Idempotency rule keeps the handler's answer for those who ask
// again, Write succeeds.
var ErrRefused = errors.New("gatehouse: the rules have answered this request, since its claim could not be confirmed")

// heldMost is how many bytes of an answer are held back.
const heldMost = 1 << 20

// unconfirmedRetry is when to ask again for a claim that too few replicas have, as the guards say it.
const unconfirmedRetry = time.Second

// Watch sets the fields of the rules in the header of w, as SetHeaders does, and returns the writer for the handler: w, with the answer
// judged, confirmed and noted on the way. Whatever else w can do (flush, hijack), it still can. Where no rule wants to know the
// answer it is w itself. After Leave it only passes on.
//
// A writer that cannot flush, the innermost one by Unwrap, is taken for a buffer whose answer leaves after the handler has returned,
// as that of http.TimeoutHandler: then the answer is held back and decided in Leave, since until then somebody else may answer in the
// handler's place. An answer of more than 1 MiB is decided when it reaches that, and then goes on to w.
//
// A connection that is taken over counts as answered with 200: it is confirmed before. Where that fails Hijack returns ErrRefused, and
// the refusal is answered.
func (p *Passage) Watch(w http.ResponseWriter) http.ResponseWriter {
	header := w.Header()
	if !p.settles {
		p.SetHeaders(header)
		return w
	}
	p.base, p.header, p.before, p.buffer = w, header, header.Clone(), buffers(w)
	p.SetHeaders(header)
	p.recording.watch(header)
	return watched(w, p)
}

// informs is for the watched writer: a held answer's informational ones are lost.
func (p *Passage) informs() bool { return p.left || !p.buffer && p.phase != phaseRefused }

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

// hijack takes the connection over, where what that promises can be confirmed.
func (p *Passage) hijack(take takeOver) (net.Conn, *bufio.ReadWriter, error) {
	open := p.phase == phaseOpen && !p.left
	if open && p.buffer {
		return nil, nil, http.ErrNotSupported
	}
	p.recording.take(open)
	if !p.begin(http.StatusOK) {
		p.recording.take(false)
		return nil, nil, ErrRefused
	}
	conn, rw, err := take()
	if open && err != nil {
		p.recording.take(false)
		p.reopen()
	}
	return conn, rw, err
}

// keep takes what the handler writes while it does not go out: it is held back, or only those who ask again will hear it.
func (p *Passage) keep(b []byte) (int, error) {
	if p.phase == phaseHeld {
		p.held.body = append(p.held.body, b...)
		return len(b), nil
	}
	if p.keepsAnswer() {
		if p.recording.wrote(b, nil); !p.recording.broken {
			return len(b), nil
		}
	}
	return 0, ErrRefused
}

// keepsAnswer reports whether the handler's answer will be kept, though the client has heard a refusal.
func (p *Passage) keepsAnswer() bool {
	for _, e := range p.entries {
		if e.again {
			return true
		}
	}
	return false
}

// overflows reports whether an answer that was held back goes out from now on, because it would be longer than heldMost with n more
// bytes. It is decided then.
func (p *Passage) overflows(n int) bool {
	if p.phase != phaseHeld || len(p.held.body)+n <= heldMost {
		return false
	}
	if p.request.Err() != nil {
		p.unanswered()
		return false
	}
	return p.release(false)
}
