package deferred_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/pipeline/deferred"
)

// TestTheAnswerHasTheFieldsOfItsHandler: the page of answers served a document without its sandbox.
func TestTheAnswerHasTheFieldsOfItsHandler(t *testing.T) {
	w := newWorld(t, redistest.Mini(t), delay.Options{}, nil)
	fields := map[string]string{"Content-Security-Policy": "sandbox", "X-Frame-Options": "DENY",
		"Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin", "X-Total": "7"}
	w.answer(func(to http.ResponseWriter, _ *http.Request) {
		for name, value := range fields {
			to.Header().Set(name, value)
		}
		to.Header().Set("Set-Cookie", "session=1")
		to.Header().Set("Cache-Control", "public")
		_, _ = io.WriteString(to, "<script>")
	})
	location := w.defers("rows")
	w.gate.open.Store(true)
	w.work()
	to := w.wantState(location, deferred.StateDone)
	fields["Set-Cookie"], fields["Cache-Control"] = "", "no-store"
	for name, want := range fields {
		if got := to.Header().Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
