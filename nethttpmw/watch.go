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
	return httpsnoop.Wrap(w, httpsnoop.Hooks{
		WriteHeader: func(write httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(code int) {
				// Informational answers come before the final one; 101 is final.
				if code < http.StatusOK && code != http.StatusSwitchingProtocols {
					if p.left || !p.buffer && p.phase != phaseRefused {
						write(code)
					}
				} else if p.begin(code) {
					write(code)
				}
			}
		},
		// All of these send the header, with 200, when it has not been sent.
		Write: func(write httpsnoop.WriteFunc) httpsnoop.WriteFunc {
			return func(b []byte) (int, error) {
				if !p.begin(http.StatusOK) && !p.overflows(len(b)) {
					return p.keep(b)
				}
				n, err := write(b)
				p.recording.wrote(b, err)
				return n, err
			}
		},
		WriteString: func(write httpsnoop.WriteStringFunc) httpsnoop.WriteStringFunc {
			return func(s string) (int, error) {
				if !p.begin(http.StatusOK) && !p.overflows(len(s)) {
					return p.keep([]byte(s))
				}
				n, err := write(s)
				if p.recording != nil {
					p.recording.wrote([]byte(s), err)
				}
				return n, err
			}
		},
		ReadFrom: func(read httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(src io.Reader) (int64, error) {
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
		},
		Flush: func(flush httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() {
				if p.begin(http.StatusOK) {
					p.recording.flushed()
					flush()
				}
			}
		},
		FlushError: func(flush httpsnoop.FlushErrorFunc) httpsnoop.FlushErrorFunc {
			return func() error {
				switch {
				case p.begin(http.StatusOK):
					p.recording.flushed()
					return flush()
				case p.phase == phaseRefused:
					return ErrRefused
				}
				return nil
			}
		},
		Hijack: func(hijack httpsnoop.HijackFunc) httpsnoop.HijackFunc {
			return func() (net.Conn, *bufio.ReadWriter, error) { return p.hijack(hijack) }
		},
	})
}

// hijack takes the connection over, where what that promises can be confirmed.
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

// keeper is what an answer is copied to that does not go out, unless it becomes too long to be held back.
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

// buffers reports whether what is written to w waits there until the handler has returned: the innermost writer cannot flush.
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
