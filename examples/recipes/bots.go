package recipes

import (
	"net/http"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// Bots keeps scripts from taking what is for people. Each layer catches what passes the one before it:
// partners pass, known bad addresses do not, an address gets what a busy person needs and is shut out for
// longer each time when it goes on, and all addresses together get what the app bears on its most expensive
// route.
func Bots(gate *core.Engine, partners, blocked *keyfuncs.List, search, app http.Handler) http.Handler {
	perAddress := ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "visitors", limit.PerSecond(10), limit.PerMinute(120)),
		Who:   keyfuncs.IP(),
		Deny:  blocked,  // 403, also while Redis is down
		Allow: partners, // not counted
		Bans: bans.New(gate, "visitor-bans", bans.Options{
			Refusals: 60, First: 5 * time.Minute, Longest: 24 * time.Hour,
		}),
	}
	inAll := ratelimit.Rule{ // however many addresses a crowd of scripts has
		Guard: limit.NewSlidingWindow(gate, "searches", limit.PerSecond(50)),
		Who:   keyfuncs.Const("all"),
	}
	mux := http.NewServeMux()
	mux.Handle("GET /search", ratelimit.HTTP(inAll)(search))
	mux.Handle("/", app)
	return ratelimit.HTTP(perAddress)(mux)
}
