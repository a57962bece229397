package recipes

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
)

// Tenants guards an application for several tenants, each at a host name of its own such as acme.example.com.
// Each tenant has what its plan allows per minute, and no user gets more than a tenth of it, so that one user
// does not use up what all have. Users of different tenants are different users, whatever their IDs.
func Tenants(gate *core.Engine, perMinute map[string]int64, app http.Handler) http.Handler {
	tenant := tenantOf(perMinute)
	ofTenant := func(_ context.Context, a core.Attempt) ([]limit.Limit, error) {
		return []limit.Limit{limit.PerMinute(perMinute[a.Actor])}, nil
	}
	ofUser := func(_ context.Context, a core.Attempt) ([]limit.Limit, error) {
		return []limit.Limit{limit.PerMinute(max(1, perMinute[a.Resource]/10))}, nil
	}
	perTenant := nethttpmw.Rule{
		Guard: limit.NewSlidingWindowBy(gate, "tenant", ofTenant),
		Who:   tenant,
	}
	perUser := nethttpmw.Rule{
		Guard: limit.NewSlidingWindowBy(gate, "tenant-user", ofUser),
		Who:   keyfuncs.User("uid"),
		What:  tenant, // a budget per user and tenant
	}
	return nethttpmw.HTTP(perUser, perTenant)(app)
}

// tenantOf finds the tenant in the host name. Names that are no tenant's are refused, so that nobody makes up
// budgets.
func tenantOf(known map[string]int64) keyfuncs.Func {
	return func(r *keyfuncs.Request) (string, error) {
		name, domain, _ := strings.Cut(strings.ToLower(r.Host), ".")
		if _, ok := known[name]; !ok || domain != "example.com" {
			return "", fmt.Errorf("%w: the host name is no tenant's", keyfuncs.ErrMalformed)
		}
		return name, nil
	}
}
