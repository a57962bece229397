package pipeline

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// watcher hears of an answer while it is written, and decides what of it goes on to the writer below.
type watcher interface {
	// informs reports whether an informational answer goes on.
	informs() bool
	// informed is told that it has gone on. httputil.ReverseProxy empties the header after it.
	informed()
	// begin is told the final status before it is sent, and 200 before anything else that sends one. It reports
	// whether the answer goes on.
	begin(status int) bool
	// passes is begin for n bytes of the body.
	passes(n int) bool
	// keep takes what does not go on.
	keep(b []byte) (int, error)
	// records returns the recording that needs a copy of the body, or nil.
	records() *recording
	// stopped says why the answer is not flushed; nil: it will go out later.
	stopped() error
	// hijack takes the connection over.
	hijack(take takeOver) (net.Conn, *bufio.ReadWriter, error)
}

// takeOver is http.Hijacker.Hijack.
type takeOver func() (net.Conn, *bufio.ReadWriter, error)

// watched returns a writer that passes the answer to w and reports it to the watcher. It keeps the optional
// methods of w that handlers use (flush, hijack, push, copy from a reader). Unwrap finds deadlines and the
// like.
func watched(w http.ResponseWriter, to watcher) http.ResponseWriter {
	own := &writer{w, to}
	_, hijacks := ability[http.Hijacker](w)
	push, pushes := ability[http.Pusher](w)
	f, h := flusher{own}, hijacker{own}
	switch flushes := canFlush(w); {
	case flushes && hijacks && pushes:
		return struct {
			*writer
			flusher
			hijacker
			http.Pusher
		}{own, f, h, push}
	case flushes && hijacks: // HTTP/1
		return struct {
			*writer
			flusher
			hijacker
		}{own, f, h}
	case flushes && pushes: // HTTP/2
		return struct {
			*writer
			flusher
			http.Pusher
		}{own, f, push}
	case flushes:
		return struct {
			*writer
			flusher
		}{own, f}
	case hijacks && pushes:
		return struct {
			*writer
			hijacker
			http.Pusher
		}{own, h, push}
	case hijacks:
		return struct {
			*writer
			hijacker
		}{own, h}
	case pushes:
		return struct {
			*writer
			http.Pusher
		}{own, push}
	}
	return own
}

// writer is a writer whose watcher hears of the answer.
type writer struct {
	http.ResponseWriter
	to watcher
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *writer) WriteHeader(code int) {
	// Informational answers come before the final one; 101 is final.
	informs := code < http.StatusOK && code != http.StatusSwitchingProtocols
	switch {
	case informs && w.to.informs():
		w.ResponseWriter.WriteHeader(code)
		w.to.informed()
	case !informs && w.to.begin(code):
		w.ResponseWriter.WriteHeader(code)
	}
}

func (w *writer) Write(b []byte) (int, error) {
	if !w.to.passes(len(b)) {
		return w.to.keep(b)
	}
	n, err := w.ResponseWriter.Write(b)
	if rec := w.to.records(); rec != nil {
		rec.wrote(b, err)
	}
	return n, err
}

func (w *writer) WriteString(s string) (int, error) {
	if !w.to.passes(len(s)) {
		return w.to.keep([]byte(s))
	}
	n, err := io.WriteString(w.ResponseWriter, s)
	if rec := w.to.records(); rec != nil {
		rec.wrote([]byte(s), err)
	}
	return n, err
}

// ReadFrom copies by the means of the writer below, such as sendfile, where all goes on and nobody wants a
// copy.
func (w *writer) ReadFrom(src io.Reader) (int64, error) {
	rec := w.to.records()
	if rec != nil || !w.to.passes(0) {
		n, err := io.Copy(struct{ io.Writer }{w}, src) // by Write
		if rec != nil {
			rec.wrote(nil, err) // a source may break off
		}
		return n, err
	}
	return io.Copy(w.ResponseWriter, src)
}

// CloseNotify is for gin: its Context.Stream needs it.
func (w *writer) CloseNotify() <-chan bool {
	if below, ok := ability[interface{ CloseNotify() <-chan bool }](w.ResponseWriter); ok {
		return below.CloseNotify()
	}
	return make(chan bool)
}

// flusher is a writer that flushes.
type flusher struct{ w *writer }

func (f flusher) Flush() { _ = f.FlushError() }

func (f flusher) FlushError() error {
	if !f.w.to.begin(http.StatusOK) {
		return f.w.to.stopped()
	}
	if rec := f.w.to.records(); rec != nil {
		rec.broken = true // a part has been sent early: it is streamed
	}
	return http.NewResponseController(f.w.ResponseWriter).Flush()
}

// hijacker is a writer whose connection can be taken over.
type hijacker struct{ w *writer }

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.w.to.hijack(http.NewResponseController(h.w.ResponseWriter).Hijack)
}

// ability returns what w can do as a T, itself or something that it wraps.
func ability[T any](w http.ResponseWriter) (able T, ok bool) {
	for w != nil {
		if able, ok = w.(T); ok {
			return able, true
		}
		inner, wraps := w.(interface{ Unwrap() http.ResponseWriter })
		if !wraps {
			break
		}
		w = inner.Unwrap()
	}
	return able, false
}

func canFlush(w http.ResponseWriter) bool {
	_, flushes := ability[http.Flusher](w)
	_, tells := ability[interface{ FlushError() error }](w)
	return flushes || tells
}

// buffers reports whether what is written to w waits there until the handler has returned: the innermost
// writer cannot flush.
func buffers(w http.ResponseWriter) bool {
	for {
		inner, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return !canFlush(w)
		}
		next := inner.Unwrap()
		if next == nil {
			return !canFlush(w)
		}
		w = next
	}
}

// beginning is a watcher that calls a function once, before the first byte of the final answer, with its
// status.
type beginning struct {
	tell  func(status int)
	begun bool
}

func (o *beginning) begin(status int) bool {
	if !o.begun {
		o.begun = true
		o.tell(status)
	}
	return true
}

func (o *beginning) passes(int) bool          { return o.begin(http.StatusOK) }
func (o *beginning) informs() bool            { return true }
func (o *beginning) informed()                {}
func (o *beginning) keep([]byte) (int, error) { return 0, nil } // all goes on
func (o *beginning) records() *recording      { return nil }
func (o *beginning) stopped() error           { return nil }
func (o *beginning) hijack(take takeOver) (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := take()
	if err == nil {
		o.begin(http.StatusOK) // as far as it can be known
	}
	return conn, rw, err
}

// hearing makes of Rule.Answer one that reports whether it has answered.
func hearing(
	answer func(w http.ResponseWriter, r *http.Request, refusal *answers.Refusal),
) func(http.ResponseWriter, *http.Request, *answers.Refusal) bool {
	if answer == nil {
		return nil
	}
	return func(w http.ResponseWriter, r *http.Request, refusal *answers.Refusal) (answered bool) {
		answer(watched(w, &beginning{tell: func(int) { answered = true }}), r, refusal)
		return answered
	}
}
