package recipes

import (
	"net/http"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline/deferred"
)

// atATime is how many exports run at a time, in all processes together.
const atATime = 10

// Exports makes exports ten at a time, however many are asked for. A request that finds no room gets 202 and
// the address of a page in place of 429, and is made later, by a process that runs
//
//	requests.Work(ctx, app, delay.WorkOptions{Concurrency: atATime})
//
// A user stores perUser requests an hour at most. The secret seals what is stored: 32 random bytes, the same
// in all processes. The login returns the user, or "".
func Exports(
	gate *core.Engine, perUser int64, secret []byte, login func(*http.Request) string, export http.Handler,
) (app http.Handler, requests *deferred.Requests) {
	requests = deferred.New(delay.New(gate, "deferred", delay.Options{}), deferred.Options{
		Who:     keyfuncs.User("uid"),
		Limit:   limit.NewSlidingWindow(gate, "stored", limit.PerHour(perUser)),
		Secrets: [][]byte{secret},
	})
	room := ratelimit.Rule{
		// A stored request waits for the end of a lease, so a short one is better here than the default.
		Guard: semaphore.New(gate, "exports", semaphore.Options{Max: atATime, Lease: time.Second}),
		Who:   keyfuncs.User("uid"),
		Defer: requests,
	}
	mux := http.NewServeMux()
	mux.Handle("POST /exports", ratelimit.HTTP(room)(export))
	mux.Handle("GET /deferred/{id}", requests)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, later := deferred.Principal(r.Context()) // it has passed the login before, and has no credentials
		if !later {
			user = login(r)
		}
		if user == "" {
			http.Error(w, "Log in.", http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r.WithContext(keyfuncs.WithValue(r.Context(), "uid", user)))
	}), requests
}
