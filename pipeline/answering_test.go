package pipeline_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// beginnings are the ways in which a handler sends 200 implicitly.
var beginnings = map[string]func(http.ResponseWriter){
	"Write":       func(w http.ResponseWriter) { _, _ = w.Write([]byte("done")) },
	"WriteString": func(w http.ResponseWriter) { _, _ = io.WriteString(w, "done") },
	"ReadFrom": func(w http.ResponseWriter) {
		_,
			_ = io.Copy(w, struct{ io.Reader }{strings.NewReader("done")})
	},
	"Flush":      func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
	"FlushError": func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() },
}

// TestStatusesAfterTheHeaderAreNotSent: the client got 200, so the request has not failed, whatever status
// the handler writes then.
func TestStatusesAfterTheHeaderAreNotSent(t *testing.T) {
	for name, begin := range beginnings {
		t.Run(name, func(t *testing.T) {
			srv, guard := guarded(t, func(w http.ResponseWriter, _ *http.Request) {
				begin(w)
				w.WriteHeader(http.StatusInternalServerError)
			})
			if answer := get(t, t.Context(), srv); answer.StatusCode != http.StatusOK {
				t.Errorf("the client hears %d", answer.StatusCode)
			}
			srv.Close()
			if got := guard.ends(); !slices.Equal(got, []bool{true}) {
				t.Errorf("settled as %v, want kept", got)
			}
		})
	}
}

// TestClientsThatGoAfterTheAnswerHaveHadIt: clients that go before, or after an informational answer only,
// have not.
func TestClientsThatGoAfterTheAnswerHaveHadIt(t *testing.T) {
	type way struct {
		begin func(http.ResponseWriter)
		kept  bool
	}
	ways := map[string]way{
		"nothing":     {func(http.ResponseWriter) {}, false},
		"early hints": {func(w http.ResponseWriter) { w.WriteHeader(http.StatusEarlyHints) }, false},
		"201":         {func(w http.ResponseWriter) { w.WriteHeader(http.StatusCreated) }, true},
		"400":         {func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadRequest) }, false},
	}
	for name, begin := range beginnings {
		ways[name] = way{begin, true}
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			goAway := make(chan struct{})
			srv, guard := guarded(t, func(w http.ResponseWriter, r *http.Request) {
				way.begin(w)
				close(goAway)
				<-r.Context().Done()
			})
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-goAway
				cancel()
			}()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			if answer, err := srv.Client().Do(r); err == nil {
				_, _ = io.Copy(io.Discard, answer.Body) // until it is cut
				answer.Body.Close()
			}
			srv.Close()
			if got := guard.ends(); !slices.Equal(got, []bool{way.kept}) {
				t.Errorf("settled as %v, want %v", got, way.kept)
			}
		})
	}
}
