package pipeline_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
)

type (
	plainWriter struct{ http.ResponseWriter }
	flushes     struct{ flushed *bool }
	hijacks     struct{}
	pushes      struct{ pushed *bool }
	notifies    struct{ gone chan bool }
	wraps       struct{ http.ResponseWriter }
)

func (f flushes) FlushError() error                                  { *f.flushed = true; return nil }
func (hijacks) Hijack() (net.Conn, *bufio.ReadWriter, error)         { return nil, nil, errHijack }
func (p pushes) Push(target string, options *http.PushOptions) error { *p.pushed = true; return nil }
func (n notifies) CloseNotify() <-chan bool                          { return n.gone }
func (w wraps) Unwrap() http.ResponseWriter                          { return w.ResponseWriter }
func (w wraps) SetReadDeadline(time.Time) error                      { return errDeadline }

var errHijack, errDeadline = errors.New("hijack"), errors.New("deadline")

// TestWatchedWritersCanDoWhatTheyCould: flush, hijack and push, in every combination, also where a wrapper
// only unwraps to what can; and nothing that was not there before.
func TestWatchedWritersCanDoWhatTheyCould(t *testing.T) {
	var flushed, pushed bool
	gone := make(chan bool)
	for name, make := range map[string]func(plain plainWriter) http.ResponseWriter{
		"": func(w plainWriter) http.ResponseWriter { return w },
		"f": func(w plainWriter) http.ResponseWriter {
			return struct {
				plainWriter
				flushes
			}{w, flushes{&flushed}}
		},
		"h": func(w plainWriter) http.ResponseWriter {
			return struct {
				plainWriter
				hijacks
			}{w, hijacks{}}
		},
		"p": func(w plainWriter) http.ResponseWriter {
			return struct {
				plainWriter
				pushes
			}{w, pushes{&pushed}}
		},
		"fh": func(w plainWriter) http.ResponseWriter {
			return struct {
				plainWriter
				flushes
				hijacks
			}{w, flushes{&flushed}, hijacks{}}
		},
		"fp": func(w plainWriter) http.ResponseWriter {
			return struct {
				plainWriter
				flushes
				pushes
			}{w, flushes{&flushed}, pushes{&pushed}}
		},
		"hp": func(w plainWriter) http.ResponseWriter {
			return struct {
				plainWriter
				hijacks
				pushes
			}{w, hijacks{}, pushes{&pushed}}
		},
		"fhpn": func(w plainWriter) http.ResponseWriter {
			return struct {
				plainWriter
				flushes
				hijacks
				pushes
				notifies
			}{w, flushes{&flushed}, hijacks{}, pushes{&pushed}, notifies{gone}}
		},
	} {
		for _, wrapped := range []bool{false, true} {
			base := make(plainWriter{httptest.NewRecorder()})
			if wrapped {
				base = wraps{base}
			}
			flushed, pushed = false, false
			guard := &fake{name: "own"}
			nethttpmw.HTTP(ruleOf(guard))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, canFlush := w.(http.Flusher)
				_, canHijack := w.(http.Hijacker)
				pusher, canPush := w.(http.Pusher)
				if canFlush != strings.Contains(name, "f") || canHijack != strings.Contains(name, "h") ||
					canPush != strings.Contains(name, "p") {
					t.Errorf("%q, wrapped %t: flush %t, hijack %t, push %t", name, wrapped, canFlush, canHijack, canPush)
				}
				control := http.NewResponseController(w)
				if err := control.Flush(); flushed != canFlush || (err == nil) != canFlush {
					t.Errorf("%q, wrapped %t: flushed %t, %v", name, wrapped, flushed, err)
				}
				want := errHijack
				if !canFlush { // a buffer, whose answer is held back
					want = http.ErrNotSupported
				}
				if _, _, err := control.Hijack(); canHijack && !errors.Is(err, want) {
					t.Errorf("%q, wrapped %t: hijack %v", name, wrapped, err)
				}
				if canPush && (pusher.Push("/", nil) != nil || !pushed) {
					t.Errorf("%q, wrapped %t: no push", name, wrapped)
				}
				if err := control.SetReadDeadline(time.Now()); wrapped != errors.Is(err, errDeadline) {
					t.Errorf("%q, wrapped %t: deadline %v", name, wrapped, err)
				}
				notifier, ok := w.(interface{ CloseNotify() <-chan bool })
				if !ok || strings.Contains(name, "n") != (notifier.CloseNotify() == (<-chan bool)(gone)) {
					t.Errorf("%q, wrapped %t: no CloseNotify, or another one", name, wrapped)
				}
				if n, err := io.Copy(w, strings.NewReader("done")); n != 4 || err != nil {
					t.Errorf("%q, wrapped %t: copied %d, %v", name, wrapped, n, err)
				}
			})).ServeHTTP(base, httptest.NewRequest(http.MethodGet, "/", nil))
		}
	}
}

// TestFlushesBelowAWrapperAreSeen: a wrapper that only unwraps to what can flush cannot be used to send an
// answer past the rules.
func TestFlushesBelowAWrapperAreSeen(t *testing.T) {
	guard := &fake{name: "own", traits: core.Traits{Confirms: true}}
	var flushed bool
	base := wraps{struct {
		plainWriter
		flushes
	}{plainWriter{httptest.NewRecorder()}, flushes{&flushed}}}
	nethttpmw.HTTP(ruleOf(guard))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := http.NewResponseController(w).Flush(); err != nil || !flushed || len(guard.ends()) != 1 {
			t.Errorf("%v, flushed %t, the guard heard %v", err, flushed, guard.ends())
		}
	})).ServeHTTP(base, httptest.NewRequest(http.MethodGet, "/", nil))
}
