package recipes

import (
	"io"
	"iter"
	"log/slog"
	"net/http"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
)

// mostOfAnAnswer is how many tokens the model may use for one answer, prompt included: tell the model the
// same.
const mostOfAnAnswer = 4000

// Model gives each user 100,000 tokens of a language model a minute. A request takes what an answer may cost
// at most; what it has not used goes back when the handler returns. Parts yields the parts of an answer, and
// what each has cost.
func Model(gate *core.Engine, parts func(*http.Request) iter.Seq2[string, int64]) http.Handler {
	tokens := nethttpmw.Rule{
		Guard: limit.NewSlidingWindow(gate, "tokens", limit.PerMinute(100_000).WithResolution(60)),
		Who:   keyfuncs.User("uid"),
		Cost:  func(*keyfuncs.Request) (int64, error) { return mostOfAnAnswer, nil },
	}
	return nethttpmw.HTTP(tokens)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for part, used := range parts(r) {
			if err := nethttpmw.Spend(r.Context(), "tokens", used); err != nil {
				slog.ErrorContext(r.Context(), "tokens are not counted", "error", err)
			}
			if _, err := io.WriteString(w, part); err != nil {
				return // the client is gone; what was spent stays spent
			}
		}
	}))
}
