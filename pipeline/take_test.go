package pipeline_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// TestTakeOfANameThatNoRuleHas: a typo was silently false, and the handler turned every buyer away. A rule
// that has let the request pass undecided is no typo.
func TestTakeOfANameThatNoRuleHas(t *testing.T) {
	skipped := ruleOf(&fake{name: "members"})
	skipped.Who, skipped.NoKey = keyfuncs.Header("X-Member"), pipeline.NoKeySkip
	said, passed := "", false
	handler := nethttpmw.HTTP(ruleOf(&fake{name: "sale"}))(nethttpmw.HTTP(skipped)(http.HandlerFunc(
		func(_ http.ResponseWriter, r *http.Request) {
			_, found := pipeline.Take(r.Context(), "members")
			passed = !found
			defer func() { said = fmt.Sprint(recover()) }()
			pipeline.Take(r.Context(), "sales")
		})))
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil))
	for _, want := range []string{`Take("sales")`, `"sale"`, `"members"`, "the name that the guard was made with"} {
		if !strings.Contains(said, want) {
			t.Errorf("panic %q, want %q in it", said, want)
		}
	}
	if !passed {
		t.Error("a rule that did not decide: its decision was taken")
	}
}

// TestBodiesThatDoNotFitAreAnsweredWith413: the key function reads no more of them than it may.
func TestBodiesThatDoNotFitAreAnsweredWith413(t *testing.T) {
	rule := ruleOf(&fake{name: "poll"})
	rule.Which = keyfuncs.JSON(32, "choice")
	app := nethttpmw.HTTP(rule)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	for body, want := range map[string]int{
		`{"choice":"red"}`: 200, `{"choice":["red"]}`: 400, `{}`: 400,
		`{"choice":"` + strings.Repeat("r", 32) + `"}`: http.StatusRequestEntityTooLarge,
	} {
		w := httptest.NewRecorder()
		app.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
		if w.Code != want || want == 200 && w.Body.String() != body {
			t.Errorf("%s: %d %s, want %d", body, w.Code, w.Body, want)
		}
	}
}
