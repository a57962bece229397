package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

const (
	stuffers         = 16 // requests at a time
	triesPerAddress  = 60 // per minute, allowed or denied
	votersPerAddress = 2  // honest people who share a household
)

// stuffing is the same poll twice: with one vote per account only, and with caps per address around that.
// examples/recipes/ballots.go has the rules of an application, with the reasons for their order.
type stuffing struct {
	open, capped pollApp
}

type pollApp struct {
	votes *votes.Guard
	http.Handler
}

func newStuffing(gate *core.Engine, z sizes) stuffing {
	// A vote that fails gives back what it took, so that a second click does not use up a household's votes.
	givesBack := func(status int) bool { return status != http.StatusCreated }
	perAddress := ratelimit.Rule{
		Guard:  limit.NewSlidingWindow(gate, "votes-by-address", limit.PerDay(int64(z.PerAddress))),
		Who:    keyfuncs.IP(),
		What:   keyfuncs.Param("poll"),
		Failed: givesBack,
	}
	// Tries count whether they are refused or not, so their limit is a middleware around the others.
	tries := ratelimit.HTTP(ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "tries-by-address", limit.PerMinute(triesPerAddress)),
		Who:   keyfuncs.IP(),
		What:  keyfuncs.Param("poll"),
	})
	none := func(h http.Handler) http.Handler { return h }
	return stuffing{
		open:   newPollApp(gate, "poll-open", none),
		capped: newPollApp(gate, "poll-capped", tries, perAddress),
	}
}

func newPollApp(gate *core.Engine, name string, around func(http.Handler) http.Handler,
	caps ...ratelimit.Rule) pollApp {
	guard := votes.New(gate, name, votes.Options{
		Poll: votes.Poll{Choices: []string{"red", "blue"}},
		Keep: raceKeep,
	})
	account := ratelimit.Rule{
		Guard: guard,
		Who:   keyfuncs.User("uid"),
		What:  keyfuncs.Param("poll"),
		Which: keyfuncs.Query("choice"),
	}
	counted := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
	})
	mux := http.NewServeMux()
	rules := ratelimit.HTTP(append(caps, account)...) // the vote last: what a cap refuses must not touch it
	mux.Handle("POST /polls/{poll}/votes", around(withUser(rules(counted))))
	return pollApp{guard, mux}
}

// pollCounts is how both polls stand.
type pollCounts struct {
	Open   pollSide `json:"open"`
	Capped pollSide `json:"capped"`
}

type pollSide struct {
	Tally map[string]int64 `json:"tally"` // from Redis
	// Attacker counts the answers to the attacker by status, Refused the honest votes that were refused.
	Attacker map[string]int `json:"attacker"`
	Refused  int            `json:"refused"`

	mu *sync.Mutex // of Attacker and Refused
}

// stuffThePoll lets an attacker with many accounts and some addresses vote for red, while honest people vote
// for blue, in both polls at the same time. Events: "counts" while it runs, and "done", with pollCounts.
func stuffThePoll(ctx context.Context, in *instance, send func(string, any)) error {
	name := in.fresh("poll")
	open := &pollSide{Attacker: map[string]int{}, mu: new(sync.Mutex)}
	capped := &pollSide{Attacker: map[string]int{}, mu: new(sync.Mutex)}
	look := func(ctx context.Context) (c pollCounts, err error) {
		if c.Open, err = open.look(ctx, in.labs.stuffed.open, name); err == nil {
			c.Capped, err = capped.look(ctx, in.labs.stuffed.capped, name)
		}
		return c, err
	}
	return counting(ctx, send, 100*time.Millisecond, look, func() error {
		seed := rand.Uint64()
		var both sync.WaitGroup
		both.Go(func() { open.stuff(ctx, in.labs.stuffed.open, name, in.sizes, seed) })
		both.Go(func() { capped.stuff(ctx, in.labs.stuffed.capped, name, in.sizes, seed) })
		both.Wait()
		return nil
	})
}

// stuff sends the attacker's tries and the honest votes, mixed, stuffers at a time.
func (p *pollSide) stuff(ctx context.Context, app pollApp, poll string, z sizes, seed uint64) {
	order := rand.New(rand.NewPCG(seed, 0)).Perm(z.Tries + z.Honest)
	together(ctx, stuffers, len(order), func(n int) {
		if i := order[n]; i < z.Tries {
			p.count(app.cast(ctx, poll+"/votes?choice=red", fmt.Sprint("bought-", i%z.Accounts),
				fmt.Sprintf("198.51.100.%d", i%z.Addresses)), false)
		} else {
			home := (i - z.Tries) / votersPerAddress
			p.count(app.cast(ctx, poll+"/votes?choice=blue", fmt.Sprint("person-", i),
				fmt.Sprintf("100.64.%d.%d", home/256%256, home%256)), true)
		}
	})
}

func (p *pollSide) count(status int, honest bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !honest:
		p.Attacker[strconv.Itoa(status)]++
	case status != http.StatusCreated:
		p.Refused++
	}
}

func (p *pollSide) look(ctx context.Context, app pollApp, poll string) (pollSide, error) {
	tally, err := app.votes.Tally(ctx, poll)
	p.mu.Lock()
	defer p.mu.Unlock()
	return pollSide{Tally: tally, Attacker: maps.Clone(p.Attacker), Refused: p.Refused}, err
}

// cast makes a request as it would come from an address, and returns the status of the answer.
func (app pollApp) cast(ctx context.Context, path, user, address string) int {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/polls/"+path, nil)
	r.RemoteAddr = net.JoinHostPort(address, "40000")
	r.Header.Set("X-User", user)
	return serve(app, r)
}
