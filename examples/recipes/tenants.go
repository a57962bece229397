package recipes

import (
	"net/http"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/budget"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
)

// Tenants guards an application for several tenants, each at a host name of its own such as acme.example.com.
// Each tenant has what its plan allows per minute, and no user gets more than a tenth of it, so that one user
// does not use up what all have. What a user is refused costs the tenant nothing.
func Tenants(gate *core.Engine, perMinute map[string]int64, app http.Handler) http.Handler {
	find := func(path []string) ([]budget.Limit, error) {
		most, known := perMinute[path[0]]
		if !known {
			return nil, budget.ErrUnknown
		}
		if len(path) == 2 { // a user of the tenant
			most = max(1, most/10)
		}
		return []budget.Limit{{Max: most, Window: time.Minute, Resolution: 60}}, nil
	}
	rule := nethttpmw.Rule{
		Guard: budget.New(gate, "tenants", budget.Options{Levels: []string{"tenant", "user"}, Find: find}),
		Under: []keyfuncs.Func{tenant},
		Who:   keyfuncs.User("uid"),
	}
	return nethttpmw.HTTP(rule)(app)
}

// tenant finds the tenant in the host name. It need not exist: the budget knows.
func tenant(r *keyfuncs.Request) (string, error) {
	name, domain, _ := strings.Cut(strings.ToLower(r.Host), ".")
	if domain != "example.com" {
		return "", keyfuncs.ErrMissing
	}
	return name, nil
}
