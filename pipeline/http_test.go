package pipeline_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// guarded is a server of the handler behind a fake guard. The guard's attempts have ended when the server is
// closed.
func guarded(t *testing.T, handler http.HandlerFunc) (*httptest.Server, *fake) {
	t.Helper()
	guard := &fake{name: "own"}
	srv := httptest.NewServer(nethttpmw.HTTP(ruleOf(guard))(handler))
	t.Cleanup(srv.Close)
	return srv, guard
}

func TestNilHandlerPanicsAtSetUp(t *testing.T) {
	defer func() {
		if text := fmt.Sprint(recover()); !strings.Contains(text, "pass the handler to run") {
			t.Errorf("panic %q", text)
		}
	}()
	nethttpmw.HTTP(ruleOf(&fake{name: "own"}))(nil)
}

// TestInformationalAnswersAreNotTheEnd: a handler may send 103 Early Hints before it answers.
func TestInformationalAnswersAreNotTheEnd(t *testing.T) {
	for status, kept := range map[int]bool{http.StatusOK: true, http.StatusNotFound: false} {
		srv, guard := guarded(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusProcessing)
			w.WriteHeader(status)
		})
		var hints []int
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
				hints = append(hints, code)
				return nil
			},
		})
		if got := get(t, ctx, srv); got.StatusCode != status || !slices.Equal(hints, []int{103, 102}) {
			t.Errorf("the client hears %v, then %d, want 103, 102 and %d", hints, got.StatusCode, status)
		}
		srv.Close()
		if got := guard.ends(); !slices.Equal(got, []bool{kept}) {
			t.Errorf("%d: settled as %v, want %v", status, got, kept)
		}
	}
}

// TestEarlyHintsAloneAreSuccess: the server sends 200 for a handler that writes no final status.
func TestEarlyHintsAloneAreSuccess(t *testing.T) {
	srv, guard := guarded(t, func(w http.ResponseWriter,
		_ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
	})
	if got := get(t, t.Context(), srv); got.StatusCode != http.StatusOK {
		t.Errorf("the client hears %d", got.StatusCode)
	}
	srv.Close()
	if got := guard.ends(); !slices.Equal(got, []bool{true}) {
		t.Errorf("settled as %v", got)
	}
}

// Promise (Endings): The first final status counts; informational answers do not.
func TestTheFirstFinalStatusCounts(t *testing.T) {
	guard := &fake{name: "own"}
	h := nethttpmw.HTTP(ruleOf(guard))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		w.WriteHeader(http.StatusInternalServerError) // is not sent any more
	}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil))
	if got := guard.ends(); !slices.Equal(got, []bool{true}) {
		t.Errorf("settled as %v", got)
	}
}

// TestSwitchedConnectionsAreKept: a handler that takes the connection over has accepted the request.
func TestSwitchedConnectionsAreKept(t *testing.T) {
	srv, guard := guarded(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello\n")
		rw.Flush()
	})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "echo")
	answer, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(answer.Body).ReadString('\n')
	answer.Body.Close()
	if answer.StatusCode != http.StatusSwitchingProtocols || line != "hello\n" {
		t.Errorf("%d %q, %v", answer.StatusCode, line, err)
	}
	redistest.Eventually(t, time.Minute, func() bool { return len(guard.ends()) > 0 },
		"the request to be settled")
	if got := guard.ends(); !slices.Equal(got, []bool{true}) {
		t.Errorf("settled as %v", got)
	}
}

// TestHandlersKeepTheirWriter: whatever the server's writer can do, it can still do behind rules that watch
// the status.
func TestHandlersKeepTheirWriter(t *testing.T) {
	srv, _ := guarded(t, func(w http.ResponseWriter, r *http.Request) {
		for what, can := range map[string]bool{
			"flush":     is[http.Flusher](w),
			"hijack":    is[http.Hijacker](w),
			"read from": is[io.ReaderFrom](w),
			"strings":   is[io.StringWriter](w),
			"push":      !is[http.Pusher](w), // HTTP/1.1 cannot
		} {
			if !can {
				t.Errorf("%s: not as the server's writer", what)
			}
		}
		control := http.NewResponseController(w)
		if err := control.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Errorf("SetWriteDeadline: %v", err)
		}
		fmt.Fprint(w, "one ")
		if err := control.Flush(); err != nil {
			t.Errorf("Flush: %v", err)
		}
		if _, err := io.Copy(w, strings.NewReader("two")); err != nil {
			t.Errorf("ReadFrom: %v", err)
		}
	})
	answer := get(t, t.Context(), srv)
	if body, err := io.ReadAll(answer.Body); string(body) != "one two" || err != nil {
		t.Errorf("%q, %v", body, err)
	}
}

func is[T any](v any) bool { _, ok := v.(T); return ok }

// TestRulesThatDoNotSettleLeaveTheWriterAlone: a rate limit does not ask how requests end, so it costs them
// nothing.
func TestRulesThatDoNotSettleLeaveTheWriterAlone(t *testing.T) {
	guard := &fake{name: "own", traits: core.Traits{KeepsOnFailure: true}}
	var got http.ResponseWriter
	h := nethttpmw.HTTP(ruleOf(guard))(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		got = w
	}))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if got != http.ResponseWriter(w) {
		t.Errorf("the handler got a %T", got)
	}
}

func get(t *testing.T, ctx context.Context, srv *httptest.Server) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	return answer
}

// hijackable is a writer whose connection can be taken over, and that counts what is written to it.
type hijackable struct {
	httptest.ResponseRecorder
	statuses int
}

func (w *hijackable) WriteHeader(int)                              { w.statuses++ }
func (w *hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }

// TestHijackedRefusalsAreAnswered: a handler that has taken the connection over has answered, so nothing is
// written after that.
func TestHijackedRefusalsAreAnswered(t *testing.T) {
	rule := ruleOf(&judge{fake{name: "own"}, core.Decision{Reason: core.ReasonLimited}})
	rule.Answer = func(w http.ResponseWriter, _ *http.Request, _ *answers.Refusal) {
		if _, _, err := w.(http.Hijacker).Hijack(); err != nil {
			t.Error(err)
		}
	}
	w := &hijackable{}
	nethttpmw.HTTP(rule)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w,
		blankRequest())
	if w.statuses != 0 {
		t.Errorf("%d statuses were written after that", w.statuses)
	}
}
