package fibermw

import (
	"github.com/gofiber/fiber/v3"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/perip"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// PerIP limits how many requests each client address may send, over all routes that the middleware is on:
//
//	app.Use(ratelimit.PerIP(gate, limit.PerMinute(100)))
//
// It is short for a [Rule] over a limit.SlidingWindow named "per-ip", whose Who is keyfuncs.IP. The address
// is the peer's, whatever headers say: behind proxies name them, with keyfuncs.TrustProxies, or all clients
// share one budget. Until Redis is back after an outage, each process counts for itself.
//
// An engine has one: PerIP panics when it is called twice with an engine. To guard several groups of routes,
// keep the middleware in a variable; for another limit, or several, write the rule:
//
//	ratelimit.Rule{Guard: limit.NewSlidingWindow(gate, "login", limit.PerMinute(5)), Who: keyfuncs.IP()}
func PerIP(gate *core.Engine, at limit.Limit, trusted ...keyfuncs.IPOption) fiber.Handler {
	p := pipeline.New(Rule{Guard: perip.New(gate, at), Who: keyfuncs.IP(trusted...)})
	if len(trusted) > 0 {
		return Follow(p)
	}
	return follow(p, byAddress)
}
