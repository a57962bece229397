package recipes

import (
	"context"
	"crypto/sha256"
	"net/http"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// A Customer is who has an API key.
type Customer struct{ ID, Plan string }

// Keys are the customers by the hash of their API key. Nobody who sees the hashes knows the keys.
type Keys map[[sha256.Size]byte]Customer

// API guards an API by the plan of the customer. Keys are checked first: a made-up key gets 401 and counts by
// address only, so inventing keys gives no new budgets and no new keys in Redis. A known key never counts by
// address, so made-up ones do not shut out the customers there.
func API(gate *core.Engine, keys Keys, api http.Handler) http.Handler {
	plans := map[string]string{} // by customer
	for _, c := range keys {
		plans[c.ID] = c.Plan
	}
	perAddress := ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "bad-keys", limit.PerMinute(10)),
		Who:   keyfuncs.IP(),
	}
	limits := func(_ context.Context, a core.Attempt) ([]limit.Limit, error) {
		switch plans[a.Actor] {
		case "internal":
			return nil, nil // not limited
		case "pro":
			return []limit.Limit{limit.PerSecond(50), limit.PerDay(100_000).WithResolution(1440)}, nil
		}
		return []limit.Limit{limit.PerSecond(5), limit.PerDay(1000)}, nil
	}
	perCustomer := ratelimit.Rule{
		Guard: limit.NewSlidingWindowBy(gate, "api", limits),
		Who:   keyfuncs.User("customer"),
	}
	guarded := ratelimit.HTTP(perCustomer)(api)
	refused := ratelimit.HTTP(perAddress)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "Unknown API key.", http.StatusUnauthorized)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, known := keys[sha256.Sum256([]byte(r.Header.Get("X-Api-Key")))]
		if !known {
			refused.ServeHTTP(w, r)
			return
		}
		guarded.ServeHTTP(w, r.WithContext(keyfuncs.WithValue(r.Context(), "customer", c.ID)))
	})
}
