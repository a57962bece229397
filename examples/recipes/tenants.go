package recipes

import (
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/budget"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// Tenants guards an application for several tenants, each at a host name of its own such as acme.example.com.
// Each tenant has what its plan allows per minute, and no user gets more than a tenth of it, so that one user
// does not use up what all have. What a user is refused costs the tenant nothing. The login in front of it
// names the user ("uid") and the user's tenant ("tenant").
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
	rule := ratelimit.Rule{
		Guard: budget.New(gate, "tenants", budget.Options{Levels: []string{"tenant", "user"}, Find: find}),
		Under: []keyfuncs.Func{tenant},
		Who:   keyfuncs.User("uid"),
	}
	return atOwnHost(ratelimit.HTTP(rule)(app))
}

// atOwnHost refuses users at the host of a tenant that is not theirs. Clients choose the Host, so without it
// users of one tenant use up the plan of another.
func atOwnHost(next http.Handler) http.Handler {
	own := keyfuncs.User("tenant")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req := &keyfuncs.Request{Request: r}
		of, _ := own(req) // "" where the login names none
		if at, err := tenant(req); err == nil && at != of {
			http.Error(w, "This is not your organisation's address.", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// tenant finds the tenant in the host name, with a port or without. It need not exist: the budget knows.
func tenant(r *keyfuncs.Request) (string, error) {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host // it has no port
	}
	name, domain, _ := strings.Cut(strings.ToLower(strings.TrimSuffix(host, ".")), ".")
	if domain != "example.com" {
		return "", keyfuncs.ErrMissing
	}
	return name, nil
}
