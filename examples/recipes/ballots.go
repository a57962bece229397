package recipes

import (
	"net/http"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// Caps of a poll that counts one vote per account, for attackers with many accounts.
const (
	triesPerAddress = 60 // per minute, allowed or denied
	votesPerAddress = 20 // per day: a family, an office
	votesPerDevice  = 2  // per day
)

// Ballots is the route of a poll, POST /polls/{poll}/votes?choice=red, with one vote per account, and caps
// per address and device. IPv6 counts by /64, because a client with one address there has all of them. The
// login stores the user as "uid".
func Ballots(
	gate *core.Engine, poll *votes.Guard, login func(http.Handler) http.Handler, proxies ...keyfuncs.IPOption,
) http.Handler {
	address := keyfuncs.IP(proxies...)
	// Only a new vote has 201. A vote that fails gives back what it took, and so does a vote that is sent again,
	// whose answer is 200. Otherwise one voter who keeps clicking would use up the votes of their office.
	givesBack := func(status int) bool { return status != http.StatusCreated }
	perAddress := ratelimit.Rule{
		Guard:  limit.NewSlidingWindow(gate, "votes-by-address", limit.PerDay(votesPerAddress)),
		Who:    address,
		What:   keyfuncs.Param("poll"),
		Failed: givesBack,
	}
	perDevice := ratelimit.Rule{
		Guard:  limit.NewSlidingWindow(gate, "votes-by-device", limit.PerDay(votesPerDevice)),
		Who:    keyfuncs.Hash(keyfuncs.Cookie(deviceCookie)), // a secret of the browser, so hashed
		What:   keyfuncs.Param("poll"),
		Failed: givesBack,
	}
	perAccount := ratelimit.Rule{
		Guard: poll,
		Who:   keyfuncs.User("uid"),
		What:  keyfuncs.Param("poll"),
		Which: keyfuncs.Query("choice"),
		ID:    keyfuncs.IdempotencyKey(),
	}
	// Tries count whether they are denied or not, so their limit is a middleware of its own, around the others.
	// It also spares the login.
	tries := ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "tries", limit.PerMinute(triesPerAddress)),
		Who:   address,
	}
	vote := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d, _ := ratelimit.Decision(r.Context(), poll.Name()); !d.Replayed { // else the first request still runs
			w.WriteHeader(http.StatusCreated)
		}
	})
	// The votes go last: a denial by a cap must not touch the voter's record. The cap per address goes first,
	// because attackers choose their devices freely, and must have their addresses.
	mux := http.NewServeMux()
	mux.Handle("POST /polls/{poll}/votes",
		ratelimit.HTTP(tries)(login(ratelimit.HTTP(perAddress, perDevice, perAccount)(vote))))
	return mux
}
