package recipes

import (
	"io"
	"iter"
	"log/slog"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/budget"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// mostOfAnAnswer is how many tokens the model may use for one answer, prompt included: tell the model the
// same.
const mostOfAnAnswer = 4000

// A TokenPlan is how many tokens an organisation may use a minute and a month, and each of its keys a minute.
type TokenPlan struct{ PerMinute, PerMonth, PerKey int64 }

// Model gives organisations tokens of language models, by their plans. A request takes what answers of this
// model have cost with this key so far. When the handler returns, what was really used counts on all levels.
// Parts yields the parts of an answer, and what each has cost. Mount it on a pattern such as
// "POST /models/{model}/answers", in a middleware that has checked the key.
func Model(
	gate *core.Engine, plans map[string]TokenPlan, parts func(*http.Request) iter.Seq2[string, int64],
) http.Handler {
	find := func(path []string) ([]budget.Limit, error) {
		plan, known := plans[path[0]]
		switch {
		case !known:
			return nil, budget.ErrUnknown
		case len(path) == 2: // a key
			return []budget.Limit{{Max: plan.PerKey, Window: time.Minute, Resolution: 60}}, nil
		}
		return []budget.Limit{
			{Max: plan.PerMinute, Window: time.Minute, Resolution: 60},
			{Max: plan.PerMonth, Period: period.Monthly(time.UTC)},
		}, nil
	}
	var usual estimates
	key := keyfuncs.User("key")
	use := keyfuncs.Join(key, keyfuncs.Param("model"))
	tokens := ratelimit.Rule{
		Guard: budget.New(gate, "tokens", budget.Options{Levels: []string{"org", "key"}, Find: find}),
		Under: []keyfuncs.Func{keyfuncs.User("org")},
		Who:   key,
		Cost: func(r *keyfuncs.Request) (int64, error) {
			who, err := use(r)
			return usual.of(who), err
		},
	}
	return ratelimit.HTTP(tokens)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sum := int64(0)
		for part, used := range parts(r) {
			sum += used
			if err := ratelimit.Spend(r.Context(), "tokens", used); err != nil {
				slog.ErrorContext(r.Context(), "tokens are not counted", "error", err)
			}
			if _, err := io.WriteString(w, part); err != nil {
				return // the client is gone; what was spent stays spent
			}
		}
		if who, err := use(&keyfuncs.Request{Request: r}); err == nil {
			usual.learn(who, sum)
		}
	}))
}

// estimates are what answers usually cost, by key and model. Each process learns its own. The zero value
// knows nothing.
type estimates struct {
	mu    sync.Mutex
	known map[string]estimate
}

// estimate is the mean cost, and how far costs are from it on average. Late ones count more.
type estimate struct{ mean, off float64 }

// of returns what few answers exceed; as long as there was none, the most.
func (e *estimates) of(who string) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	usual, known := e.known[who]
	if !known {
		return mostOfAnAnswer
	}
	return int64(min(max(usual.mean+2*usual.off, 1), mostOfAnAnswer))
}

// learn moves the estimate, nearly as TCP does for round trips (RFC 6298, section 2).
func (e *estimates) learn(who string, used int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	cost := float64(used)
	usual, known := e.known[who]
	if !known {
		usual = estimate{cost, cost / 2}
	}
	usual.off += (math.Abs(cost-usual.mean) - usual.off) / 4
	usual.mean += (cost - usual.mean) / 8
	if e.known == nil || len(e.known) >= 10_000 { // bounded: it learns anew
		e.known = map[string]estimate{}
	}
	e.known[who] = usual
}
