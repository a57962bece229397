package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
)

const (
	addresses = 50 // of the attacker: 49 of IPv4, and one of IPv6 with its whole /64
	perOffice = 10 // people behind one address: every other ten people; the others are at home
	clients   = 32 // clients that send at the same time
)

// attack is an attacker who stuffs a poll with votes for red.
type attack struct {
	tries, accounts int
	people          int // people who vote for blue meanwhile, and click twice
	seed            uint64
}

// result is the result of an attack.
type result struct {
	red, blue int         // votes counted
	statuses  map[int]int // the attacker's answers, by status
	refused   []int       // the statuses of honest votes that did not pass
}

// run runs the attacker and an honest crowd against an application at the same time.
func (k attack) run(ctx context.Context, a *app) (result, error) {
	res := result{statuses: map[int]int{}}
	var mu sync.Mutex
	visits := make([]func(), 0, k.tries+k.people)
	for i := range k.tries {
		visits = append(visits, func() {
			status := serve(a, k.try(ctx, i))
			mu.Lock()
			defer mu.Unlock()
			res.statuses[status]++
		})
	}
	for i := range k.people {
		visits = append(visits, func() {
			for _, want := range []int{http.StatusCreated, http.StatusOK} { // a vote, and a second click
				if status := serve(a, honest(ctx, i)); status != want {
					mu.Lock()
					res.refused = append(res.refused, status)
					mu.Unlock()
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(k.seed, 0))
	rng.Shuffle(len(visits), func(i, j int) { visits[i], visits[j] = visits[j], visits[i] })

	queue := make(chan func())
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for visit := range queue {
				visit()
			}
		})
	}
	for _, visit := range visits {
		queue <- visit
	}
	close(queue)
	all.Wait()

	res.red, res.blue = a.counted["red"], a.counted["blue"]
	tally, err := a.votes.Tally(ctx, poll)
	if err == nil && (tally["red"] != 0 || tally["blue"] != 0) &&
		(tally["red"] != int64(res.red) || tally["blue"] != int64(res.blue)) {
		err = fmt.Errorf("the tally is %v, the handler counted %d and %d", tally, res.red, res.blue)
	}
	return res, err
}

// try is one try to vote for red: from a random account and address, with a new device, a forged
// X-Forwarded-For, and an operation ID that is repeated, new or absent.
func (k attack) try(ctx context.Context, i int) *http.Request {
	rng := rand.New(rand.NewPCG(k.seed, uint64(i)+1))
	account := fmt.Sprint("account-", rng.IntN(k.accounts))
	from := fmt.Sprintf("198.51.100.%d", rng.IntN(addresses-1))
	if rng.IntN(addresses) == 0 {
		from = fmt.Sprintf("2001:db8:bad::%x:%x", rng.IntN(1<<16), rng.IntN(1<<16))
	}
	forged := fmt.Sprintf("203.0.113.%d", rng.IntN(256))
	keys := []string{"", `"the-same"`, fmt.Sprintf(`"%d"`, i)}
	b := ballot{"red", account, from, forged, fmt.Sprint("device-", i), keys[rng.IntN(len(keys))]}
	return b.request(ctx, rng)
}

// honest is a vote for blue, from somebody at home or in an office.
func honest(ctx context.Context, i int) *http.Request {
	office := i / perOffice
	from := fmt.Sprintf("100.64.%d.%d", office/256%256, office%256)
	if office%2 == 1 {
		from = fmt.Sprintf("2001:db8:%x::1", i) // at home
	}
	rng := rand.New(rand.NewPCG(uint64(i), 0))
	return ballot{"blue", fmt.Sprint("person-", i), from, "", fmt.Sprint("phone-", i), `"1"`}.request(ctx, rng)
}

// ballot is a vote as it is sent.
type ballot struct{ choice, account, from, forged, device, key string }

// request makes a request from an address, through one of our proxies or around them.
func (b ballot) request(ctx context.Context, rng *rand.Rand) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/polls/"+poll+"/votes?choice="+b.choice, nil)
	r.RemoteAddr = net.JoinHostPort(b.from, "40000")
	if b.forged != "" {
		r.Header.Set("X-Forwarded-For", b.forged)
	}
	if rng.IntN(2) == 0 { // our proxies append to what they get
		r.RemoteAddr = "10.0.0.1:40000"
		r.Header.Add("X-Forwarded-For", b.from)
	}
	r.Header.Set(accountHeader, b.account)
	r.AddCookie(&http.Cookie{Name: deviceCookie, Value: b.device})
	if b.key != "" {
		r.Header.Set(idempotencyField, b.key)
	}
	return r
}

func serve(h http.Handler, r *http.Request) int {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}
