package pipeline_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// TestTakeOfANameThatNoRuleHasWarnsOnAServer: a server goes on, and logs the mistake once where its engine
// logs.
func TestTakeOfANameThatNoRuleHasWarnsOnAServer(t *testing.T) {
	elsewhere := logHere(t)
	pipeline.AsServer(t)
	var log bytes.Buffer
	gate := core.NewMemory(core.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	handler := nethttpmw.HTTP(ruleOf(limit.NewSlidingWindow(gate, "sale", limit.PerHour(9))))(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if _, taken := pipeline.Take(r.Context(), "sales"); !taken {
				w.WriteHeader(http.StatusConflict)
			}
		}))
	for range 2 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
		if w.Code != http.StatusConflict {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	if said := log.String(); strings.Count(said, "code=GH006") != 1 || !strings.Contains(said, "guard=sales") ||
		!strings.Contains(said, "rules=[sale]") || elsewhere.Len() > 0 {
		t.Errorf("logged %q, elsewhere %q", said, elsewhere)
	}
}
