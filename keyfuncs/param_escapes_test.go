package keyfuncs_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// TestParamUndoesEscapes: no spelling of a path makes a second poll of one, on routers that match the path as
// sent (chi) and on those that match the plain one (ServeMux).
func TestParamUndoesEscapes(t *testing.T) {
	var got string
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var err error
		if got, err = keyfuncs.Param("poll")(&keyfuncs.Request{Request: r}); err != nil {
			t.Error(err)
		}
	})
	mux, router := http.NewServeMux(), chi.NewRouter()
	mux.Handle("/polls/{poll}/votes", handler)
	router.Handle("/polls/{poll}/votes", handler)
	for name, h := range map[string]http.Handler{"ServeMux": mux, "chi": router} {
		for path, want := range map[string]string{
			"/polls/final/votes":        "final",
			"/polls/%66inal/votes":      "final",
			"/polls/fi%6eal/votes":      "final",
			"/polls/fi%6Eal/votes":      "final",
			"/polls/a%20b/votes":        "a b",
			"/polls/a%2Fb/votes":        "a/b",
			"/polls/100%25/votes":       "100%",
			"/polls/%31%30%30%25/votes": "100%",
			"/polls/%2566inal/votes":    "%66inal",
		} {
			got = ""
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, path, nil))
			if got != want {
				t.Errorf("%s %s: %q, want %q", name, path, got, want)
			}
		}
	}
}
