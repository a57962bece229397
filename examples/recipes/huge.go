package recipes

import (
	"net/http"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/budget"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/limit/lease"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// Huge guards an application whose organisations are too large for one slot of a cluster. Each team is a tree
// of its own, with its users. The organisation above has a leased limit, whose units the processes fetch
// ahead. What one rule refuses costs the other nothing.
func Huge(gate *core.Engine, perOrg limit.Limit, team, user budget.Limit, app http.Handler) http.Handler {
	find := func(path []string) ([]budget.Limit, error) {
		return []budget.Limit{[]budget.Limit{team, user}[len(path)-1]}, nil
	}
	org := keyfuncs.User("org")
	below := ratelimit.Rule{
		Guard: budget.New(gate, "teams", budget.Options{Levels: []string{"team", "user"}, Find: find}),
		Under: []keyfuncs.Func{keyfuncs.Join(org, keyfuncs.User("team"))}, // a slot for each team
		Who:   keyfuncs.User("uid"),
	}
	whole := ratelimit.Rule{
		Guard: lease.New(gate, "orgs", perOrg),
		Who:   org,
	}
	return ratelimit.HTTP(below, whole)(app)
}
