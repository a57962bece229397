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

// stuffedPoll is a poll that an attacker with many accounts votes in. examples/recipes/ballots.go has the
// rules of an application, with the reasons for their order.
type stuffedPoll struct {
	votes *votes.Guard
	name  string
	http.Handler

	mu       sync.Mutex
	attacker map[string]int // the answers to the attacker, by status
	refused  int            // honest votes
}

// newStuffedPoll makes a poll with one vote per account and, if it is capped, with caps per address.
func newStuffedPoll(gate *core.Engine, z sizes, name, kind string) *stuffedPoll {
	p := &stuffedPoll{name: name, attacker: map[string]int{}}
	p.votes = votes.New(gate, kind, votes.Options{
		Poll: votes.Poll{Choices: []string{"red", "blue"}},
		Keep: raceKeep,
	})
	rules := []ratelimit.Rule{{
		Guard: p.votes,
		Who:   keyfuncs.User("uid"),
		What:  keyfuncs.Const(p.name),
		Which: keyfuncs.Query("choice"),
	}}
	tries := func(h http.Handler) http.Handler { return h }
	if kind == "capped" {
		perAddress := ratelimit.Rule{
			Guard: limit.NewSlidingWindow(gate, "votes-by-address", limit.PerDay(int64(z.PerAddress))),
			Who:   keyfuncs.IP(),
			What:  keyfuncs.Const(p.name),
			// A vote that fails gives back what it took, so that a second click does not use up a household's votes.
			Failed: func(status int) bool { return status != http.StatusCreated },
		}
		rules = []ratelimit.Rule{perAddress, rules[0]} // the vote last: what a cap refuses must not touch it
		// Tries count whether they are refused or not, so their limit is a middleware around the others.
		tries = ratelimit.HTTP(ratelimit.Rule{
			Guard: limit.NewSlidingWindow(gate, "tries-by-address", limit.PerMinute(triesPerAddress)),
			Who:   keyfuncs.IP(),
			What:  keyfuncs.Const(p.name),
		})
	}
	counted := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }
	p.Handler = tries(ratelimit.HTTP(rules...)(http.HandlerFunc(counted)))
	return p
}

// stuffThePoll lets an attacker with many accounts and some addresses vote for red, while honest people vote
// for blue, in a poll without caps and in one with them at the same time. Events: "counts" and "done".
func stuffThePoll(ctx context.Context, in *instance, t *tape) error {
	worker, z, name := in.store.hire(), in.sizes, fresh("poll")
	defer worker.kill()
	// With each command, the Redis inside the process looks at all keys that expire: hundreds make it slow.
	defer func() { _ = in.store.clear(context.WithoutCancel(ctx), "*"+name+"*") }()
	open := newStuffedPoll(worker.gate, z, name, "open")
	capped := newStuffedPoll(worker.gate, z, name, "capped")
	counts := func(ctx context.Context) (object, error) {
		a, err := open.counts(ctx)
		if err != nil {
			return nil, err
		}
		b, err := capped.counts(ctx)
		return object{"open": a, "capped": b}, err
	}
	order := rand.Perm(z.Tries + z.Honest)
	return counting(ctx, t, 100*time.Millisecond, counts, func(ctx context.Context) error {
		return together(ctx, 2*stuffers, 2*len(order), func(ctx context.Context, i int) error {
			[]*stuffedPoll{open, capped}[i%2].cast(ctx, z, order[i/2])
			return nil
		})
	})
}

// cast sends a vote, as it would come from an address: a try of the attacker, or the vote of a person.
func (p *stuffedPoll) cast(ctx context.Context, z sizes, i int) {
	choice, user := "red", fmt.Sprint("bought-", i%z.Accounts)
	address := fmt.Sprintf("198.51.100.%d", i%z.Addresses)
	if i >= z.Tries {
		home := (i - z.Tries) / votersPerAddress
		choice, user = "blue", fmt.Sprint("person-", i)
		address = fmt.Sprintf("100.64.%d.%d", home/256, home%256)
	}
	ctx = keyfuncs.WithValue(ctx, "uid", user)
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/?choice="+choice, nil)
	r.RemoteAddr = net.JoinHostPort(address, "40000")
	status := serve(p, r)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case choice == "red":
		p.attacker[strconv.Itoa(status)]++
	case status != http.StatusCreated:
		p.refused++
	}
}

func (p *stuffedPoll) counts(ctx context.Context) (object, error) {
	tally, err := p.votes.Tally(ctx, p.name)
	p.mu.Lock()
	defer p.mu.Unlock()
	return object{"tally": tally, "attacker": maps.Clone(p.attacker), "refused": p.refused}, err
}
