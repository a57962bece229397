package nethttpmw

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/felixge/httpsnoop"
)

// ErrRefused is the error that a handler gets when it writes after the rules have refused the request in its
// place, because a claim could not be confirmed. It comes from Write, from Flush of http.ResponseController
// and from Hijack. The client has got its response, so the handler can only stop. While an idempotency rule
// keeps the handler's response for repetitions, Write succeeds.
var ErrRefused = errors.New("gatehouse: the request was refused because its claim could not be confirmed")

// heldMost is how many bytes of a response are held back at most.
const heldMost = 1 << 20

// unconfirmedRetry is the Retry-After of a claim that too few replicas have, the same as that of the guards.
const unconfirmedRetry = time.Second

// Watch adds the RateLimit fields to the header of w, as SetHeaders does, and returns the writer for the
// handler. The writer judges, confirms and records the response before passing it on to w, and has the same
// optional interfaces as w (flush, hijack). If no rule depends on the response, Watch returns w itself. After
// Leave the writer only passes on.
//
// If the innermost writer, by Unwrap, cannot flush, Watch takes it for a buffer that sends the response after
// the handler has returned, like that of http.TimeoutHandler. Until then another handler may answer instead,
// so the response is held back and decided in Leave. A response of more than 1 MiB is decided when it reaches
// that size, and then passed on to w.
//
// A hijacked connection counts as answered with 200. It is confirmed before it is handed over. If that fails,
// Hijack returns ErrRefused, and the client gets the refusal.
func (p *Passage) Watch(w http.ResponseWriter) http.ResponseWriter {
	header := w.Header()
	if !p.settles {
		p.SetHeaders(header)
		return w
	}
	p.base, p.header, p.before, p.buffer = w, header, header.Clone(), buffers(w)
	p.SetHeaders(header)
	p.recording.watch(header)
	return httpsnoop.Wrap(w, httpsnoop.Hooks{
		WriteHeader: func(write httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(code int) { p.writeHeader(write, code) }
		},
		// Each of these sends the header with status 200 unless it has been sent.
		Write: func(write httpsnoop.WriteFunc) httpsnoop.WriteFunc {
			return func(b []byte) (int, error) { return p.write(write, b) }
		},
		WriteString: func(write httpsnoop.WriteStringFunc) httpsnoop.WriteStringFunc {
			return func(s string) (int, error) { return p.writeString(write, s) }
		},
		ReadFrom: func(read httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(src io.Reader) (int64, error) { return p.readFrom(read, src) }
		},
		Flush: func(flush httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() { _ = p.flush(func() error { flush(); return nil }) }
		},
		FlushError: func(flush httpsnoop.FlushErrorFunc) httpsnoop.FlushErrorFunc {
			return func() error { return p.flush(flush) }
		},
		Hijack: func(hijack httpsnoop.HijackFunc) httpsnoop.HijackFunc {
			return func() (net.Conn, *bufio.ReadWriter, error) { return p.hijack(hijack) }
		},
	})
}

// writeHeader passes the status on, unless the response is held back or was refused.
func (p *Passage) writeHeader(write httpsnoop.WriteHeaderFunc, code int) {
	// Informational responses come before the final one; 101 is final.
	if code < http.StatusOK && code != http.StatusSwitchingProtocols {
		if p.left || !p.buffer && p.phase != phaseRefused {
			write(code)
		}
	} else if p.begin(code) {
		write(code)
	}
}

// write passes a part of the body on, or keeps it.
func (p *Passage) write(write httpsnoop.WriteFunc, b []byte) (int, error) {
	if !p.begin(http.StatusOK) && !p.overflows(len(b)) {
		return p.keep(b)
	}
	n, err := write(b)
	p.recording.wrote(b, err)
	return n, err
}

// writeString is write for strings. It copies the string only for a recording.
func (p *Passage) writeString(write httpsnoop.WriteStringFunc, s string) (int, error) {
	if !p.begin(http.StatusOK) && !p.overflows(len(s)) {
		return p.keep([]byte(s))
	}
	n, err := write(s)
	if p.recording != nil {
		p.recording.wrote([]byte(s), err)
	}
	return n, err
}

// readFrom passes a copied body on, or keeps it.
func (p *Passage) readFrom(read httpsnoop.ReadFromFunc, src io.Reader) (int64, error) {
	if !p.begin(http.StatusOK) {
		return io.Copy(keeper{p, p.base}, src)
	}
	if p.recording == nil {
		return read(src)
	}
	n, err := read(io.TeeReader(src, p.recording))
	p.recording.wrote(nil, err)
	return n, err
}

// flush flushes a response that is being sent. A response that is held back stays so.
func (p *Passage) flush(flush func() error) error {
	switch {
	case p.begin(http.StatusOK):
		p.recording.flushed()
		return flush()
	case p.phase == phaseRefused:
		return ErrRefused
	}
	return nil
}

// hijack hands the connection over after the entries have been confirmed.
func (p *Passage) hijack(hijack httpsnoop.HijackFunc) (net.Conn, *bufio.ReadWriter, error) {
	open := p.phase == phaseOpen && !p.left
	if open && p.buffer {
		return nil, nil, http.ErrNotSupported
	}
	p.recording.take(open)
	if !p.begin(http.StatusOK) {
		p.recording.take(false)
		return nil, nil, ErrRefused
	}
	conn, rw, err := hijack()
	if open && err != nil {
		p.recording.take(false)
		p.reopen()
	}
	return conn, rw, err
}

// keep takes a part of the response that is not sent: it is held back, or recorded for repetitions only.
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

// keepsAnswer reports whether the handler's response will be kept although the client got a refusal.
func (p *Passage) keepsAnswer() bool {
	for _, e := range p.entries {
		if e.again {
			return true
		}
	}
	return false
}

// keeper is the destination of a copied response that is not sent, until it becomes too long to be held back.
type keeper struct {
	p  *Passage
	to io.Writer // the base
}

func (k keeper) Write(b []byte) (int, error) {
	if k.p.phase != phaseSent && !k.p.overflows(len(b)) {
		return k.p.keep(b)
	}
	n, err := k.to.Write(b)
	k.p.recording.wrote(b, err)
	return n, err
}

// overflows reports whether a response that was held back is sent from now on, because n more bytes would
// exceed heldMost. It is decided then.
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

// buffers reports whether w keeps the response until the handler has returned, which is so if the innermost
// writer cannot flush.
func buffers(w http.ResponseWriter) bool {
	for {
		inner, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		next := inner.Unwrap()
		if next == nil {
			break
		}
		w = next
	}
	switch w.(type) {
	case http.Flusher, interface{ FlushError() error }:
		return false
	}
	return true
}
