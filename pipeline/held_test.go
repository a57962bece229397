package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// unflushable is a writer that cannot flush, such as a wrapper that does not implement it.
type unflushable struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *unflushable) Header() http.Header { return w.header }
func (w *unflushable) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}
func (w *unflushable) Write(b []byte) (int, error) { return w.body.Write(b) }

// TestLongAnswersAreNotHeldBack: what a writer that cannot flush is sent is held back up to 1 MiB, so that a
// download does not fill the memory; it is decided then, and arrives whole.
func TestLongAnswersAreNotHeldBack(t *testing.T) {
	const chunk = 1 << 16
	for name, write := range map[string]func(w io.Writer, text string) error{
		"Write":  func(w io.Writer, text string) error { _, err := w.Write([]byte(text)); return err },
		"string": func(w io.Writer, text string) error { _, err := io.WriteString(w, text); return err },
		"copy": func(w io.Writer, text string) error {
			_,
				err := io.Copy(w, strings.NewReader(text))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			guard := &fake{name: "own", traits: core.Traits{Confirms: true}}
			w := &unflushable{header: http.Header{}}
			sent, most := 0, 0
			app := nethttpmw.HTTP(ruleOf(guard))(http.HandlerFunc(func(to http.ResponseWriter, _ *http.Request) {
				to.WriteHeader(http.StatusCreated)
				for range 48 {
					if err := write(to, strings.Repeat(string(rune(sent/chunk)), chunk)); err != nil {
						t.Fatal(err)
					}
					sent += chunk
					most = max(most, sent-w.body.Len())
				}
				if len(guard.ends()) != 1 {
					t.Error("the answer went out, and nothing was confirmed")
				}
			}))
			app.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			if most > 1<<20+chunk || w.status != http.StatusCreated || w.body.Len() != sent || len(guard.ends()) != 1 {
				t.Errorf("%d of %d bytes with %d, at most %d held back; the guard heard %v", w.body.Len(), sent, w.status,
					most, guard.ends())
			}
			for i, b := range w.body.Bytes() {
				if int(b) != i/chunk {
					t.Fatalf("byte %d is %d", i, b)
				}
			}
		})
	}
}

// TestLongAnswersAfterATimeoutAreStopped: the handler around the rules has answered already.
func TestLongAnswersAfterATimeoutAreStopped(t *testing.T) {
	guard := &fake{name: "own", traits: core.Traits{Confirms: true}}
	w := &unflushable{header: http.Header{}}
	ctx, cancel := context.WithCancel(t.Context())
	var err error
	app := nethttpmw.HTTP(ruleOf(guard))(http.HandlerFunc(func(to http.ResponseWriter, _ *http.Request) {
		cancel()
		for range 3 {
			_, err = to.Write(make([]byte, 1<<19))
		}
	}))
	app.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
	if !errors.Is(err, pipeline.ErrRefused) || w.status != http.StatusServiceUnavailable {
		t.Errorf("%v, status %d", err, w.status)
	}
	if ends := guard.ends(); len(ends) != 1 || ends[0] {
		t.Errorf("the guard heard %v", ends)
	}
}
