package main

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

const (
	poll             = "final"
	triesPerAddress  = 60 // per minute, allowed or denied
	votesPerAddress  = 20 // per day: a family, an office
	votesPerDevice   = 2  // per day
	votesPerAccount  = 1
	proxies          = "10.0.0.0/8" // our own, in front of the application
	deviceCookie     = "device"
	accountHeader    = "X-User"
	idempotencyField = "Idempotency-Key"
)

// rules says which rules guard the route. An application uses all of them; leaving some out shows what each
// is good for.
type rules struct{ tries, address, device, account bool }

// app is one poll.
type app struct {
	http.Handler
	votes *votes.Guard

	mu      sync.Mutex
	counted map[string]int // votes by choice, as the handler counts them
}

func newApp(gate *core.Engine, on rules) *app {
	a := &app{counted: map[string]int{}}
	// IPv6 by /64: a client with one address there has all of them
	address := keyfuncs.IP(keyfuncs.TrustProxies(proxies))

	// A vote that fails gives back what it took, under all rules of its middleware. So does a vote that is
	// sent again: it is answered with 200, and only 201 is a new vote. Otherwise one voter who keeps
	// clicking would use up the votes of their whole office.
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
	a.votes = votes.New(gate, "poll", votes.Options{Find: findPoll, Keep: 24 * time.Hour})
	perAccount := ratelimit.Rule{
		Guard: a.votes,
		Who:   keyfuncs.User("uid"),
		What:  keyfuncs.Param("poll"),
		Which: keyfuncs.Query("choice"),
		ID:    keyfuncs.IdempotencyKey(),
	}
	tries := ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "tries", limit.PerMinute(triesPerAddress)),
		Who:   address,
	}

	// The votes guard goes last: a denial by an earlier rule must not touch the voter's record, and what
	// the earlier rules took goes back when the account has already voted. Of the two caps the address goes
	// first, because it denies most: attackers choose their device freely, but they must have their
	// addresses. (The device cap stops those who do not think of that, and the browser that a class of
	// pupils shares.)
	var claims []ratelimit.Rule
	for _, c := range []struct {
		on   bool
		rule ratelimit.Rule
	}{{on.address, perAddress}, {on.device, perDevice}, {on.account, perAccount}} {
		if c.on {
			claims = append(claims, c.rule)
		}
	}
	var vote http.Handler = http.HandlerFunc(a.vote)
	if len(claims) > 0 {
		vote = ratelimit.HTTP(claims...)(vote)
	}
	// Tries count whether they are denied or not, so their limit is a separate middleware around all
	// others: rules of one middleware would give the tries back. Attackers mostly get this denial, usually
	// from the memory of the process, and it also spares the login.
	vote = login(vote)
	if on.tries {
		vote = ratelimit.HTTP(tries)(vote)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /polls/{poll}/votes", vote)
	a.Handler = mux
	return a
}

// allowed returns the most votes that the rules allow within a day, with that many tries, accounts,
// addresses and devices.
func (on rules) allowed(tries, accounts, addresses, devices int) int {
	most := tries
	if on.account {
		most = min(most, accounts*votesPerAccount)
	}
	if on.address {
		most = min(most, addresses*votesPerAddress)
	}
	if on.device {
		most = min(most, devices*votesPerDevice)
	}
	return most
}

func findPoll(_ context.Context, name string) (votes.Poll, error) {
	if name != poll {
		return votes.Poll{}, votes.ErrNoPoll
	}
	return votes.Poll{PerVoter: votesPerAccount, Choices: []string{"red", "blue"}}, nil
}

// login believes any name. The name stands for an account that costs an e-mail address, a phone number or
// patience: no rule can say how many accounts somebody has.
func login(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := r.Header.Get(accountHeader)
		if user == "" {
			http.Error(w, "Log in first.", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(keyfuncs.WithValue(r.Context(), "uid", user)))
	})
}

// vote answers 201 for a new vote. A vote that was sent again comes here only while the first request runs;
// the rule answers later ones itself, also with 200.
func (a *app) vote(w http.ResponseWriter, r *http.Request) {
	if d, _ := ratelimit.Decision(r.Context(), "poll"); d.Replayed {
		w.WriteHeader(http.StatusOK)
		return
	}
	a.mu.Lock()
	a.counted[r.URL.Query().Get("choice")]++
	a.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
}
