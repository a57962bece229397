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
	"github.com/gatehouse-go/gatehouse/nethttpmw"
)

const (
	poll             = "final"
	triesPerAddress  = 60 // a minute, whatever becomes of them
	votesPerAddress  = 20 // a day: a family, an office
	votesPerDevice   = 2  // a day
	votesPerAccount  = 1
	proxies          = "10.0.0.0/8" // ours, in front of the application
	deviceCookie     = "device"
	accountHeader    = "X-User"
	idempotencyField = "Idempotency-Key"
)

// rules says which rules guard the route. An application has all of them; leaving some out shows what each is good for.
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
	address := keyfuncs.IP(keyfuncs.TrustProxies(proxies)) // IPv6 by /64: who has one address there has all of them

	// A vote that fails gives back what it took, by all rules of its middleware. So does a vote that is sent again: it is answered
	// with 200, and only 201 is a vote more. Else one voter who clicks and clicks would use up what his office has.
	givesBack := func(status int) bool { return status != http.StatusCreated }
	perAddress := nethttpmw.Rule{
		Guard:  limit.NewSlidingWindow(gate, "votes-by-address", limit.PerDay(votesPerAddress)),
		Who:    address,
		What:   keyfuncs.Param("poll"),
		Failed: givesBack,
	}
	perDevice := nethttpmw.Rule{
		Guard:  limit.NewSlidingWindow(gate, "votes-by-device", limit.PerDay(votesPerDevice)),
		Who:    keyfuncs.Hash(keyfuncs.Cookie(deviceCookie)), // a secret of the browser's: hashed
		What:   keyfuncs.Param("poll"),
		Failed: givesBack,
	}
	a.votes = votes.New(gate, "poll", votes.Options{Find: findPoll, Keep: 24 * time.Hour})
	perAccount := nethttpmw.Rule{
		Guard: a.votes,
		Who:   keyfuncs.User("uid"),
		What:  keyfuncs.Param("poll"),
		Which: keyfuncs.Query("choice"),
		ID:    keyfuncs.Join(keyfuncs.User("uid"), keyfuncs.IdempotencyKey()),
	}
	tries := nethttpmw.Rule{
		Guard: limit.NewSlidingWindow(gate, "tries", limit.PerMinute(triesPerAddress)),
		Who:   address,
	}

	// The claim goes last: a refusal by an earlier rule must not touch the voter's record, and what the earlier ones took goes
	// back when the account has voted already. Of the two caps the address goes first, because it refuses most: an attacker
	// chooses his device as he likes, his address he has to have. (A device is a cap for those who do not think of
	// that, and for the browser that a class of pupils shares.)
	var claims []nethttpmw.Rule
	for _, c := range []struct {
		on   bool
		rule nethttpmw.Rule
	}{{on.address, perAddress}, {on.device, perDevice}, {on.account, perAccount}} {
		if c.on {
			claims = append(claims, c.rule)
		}
	}
	var vote http.Handler = http.HandlerFunc(a.vote)
	if len(claims) > 0 {
		vote = nethttpmw.HTTP(claims...)(vote)
	}
	// Tries count whether they are refused or not, so their limit is a middleware of its own, outside of all: rules of one
	// middleware would give it back. It is what an attacker hears most, mostly out of the process's own memory, and
	// it spares the login, too.
	vote = login(vote)
	if on.tries {
		vote = nethttpmw.HTTP(tries)(vote)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /polls/{poll}/votes", vote)
	a.Handler = mux
	return a
}

// allowed is the most votes that the rules let anybody have with so many tries, accounts, addresses and devices, within a day.
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

// login believes any name, which stands for an account that has been paid for with an e-mail address, a phone number or patience:
// how many accounts somebody can have is not for a rule to say.
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

// vote answers 201 for a vote more, and 200 for one that was sent again.
func (a *app) vote(w http.ResponseWriter, r *http.Request) {
	if d, _ := nethttpmw.Decision(r.Context(), "poll"); d.Replayed {
		w.WriteHeader(http.StatusOK)
		return
	}
	a.mu.Lock()
	a.counted[r.URL.Query().Get("choice")]++
	a.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
}
