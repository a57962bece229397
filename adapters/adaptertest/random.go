package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/idempotency"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// randomEndings plays buyers who vote and buy in one request, and try again, some of them with a key. Each
// request ends in a random way, or finds all permits taken. Afterwards nothing is held, and the sold units
// and the votes are exactly those of the requests that succeeded.
//
// The check runs with six applications, so these are about 700 requests; in make soak 10,000 for each on a
// redis-server, and fewer on miniredis, which is slow with so many.
func randomEndings(s *scene) {
	requests := 120
	switch {
	case redistest.Soak() && s.backend.Mini == nil:
		requests = 10_000
	case redistest.Soak():
		requests = 1200
	}
	seed := rand.Uint64()
	s.Logf("seed %d", seed)

	once := s.once(idempotency.Options{MaxBody: 100, Lease: time.Hour})
	once.NoKey = pipeline.NoKeySkip
	votes := votes.New(s.gate, "vote", votes.Options{})
	purchase := s.sale("sale", seckill.Sale{Stock: int64(requests / 5), Hold: time.Hour})
	plays := &plays{running: map[string]chan struct{}{}, kept: map[string]int{}}
	site := rate(limit.NewSlidingWindow(s.gate, "site", limit.PerHour(1_000)))
	site.Failed = func(status int) bool { return status >= 500 } // so that limits are settled, too
	// Fewer permits than workers, and a lease that no busy machine outlasts.
	exports := semaphore.New(s.gate, "exports", semaphore.Options{Max: 6, Lease: time.Hour})
	app := s.framework.Build(onThings(plays.handle, site, claim(exports), once, vote(votes), claim(purchase)))
	plain, patient, impatient := s.serve(app), s.serve(app, timeout(time.Hour)), s.serve(app, timeout(soon))

	var possible []int // of the endings
	for n, e := range endings {
		if e.stop == nil && !s.framework.leavesOut(s, e.name) {
			possible = append(possible, n)
		}
	}
	var workers sync.WaitGroup
	for worker := range uint64(8) {
		workers.Go(func() {
			rng := rand.New(rand.NewPCG(seed, worker))
			for i := range requests / 8 {
				user, key := fmt.Sprintf("buyer %d of %d", i/3, worker), "" // up to three tries for each
				if worker%2 == 0 {
					key = fmt.Sprintf("order-%d-of-%d", i/3, worker)
				}
				n := possible[rng.IntN(len(possible))]
				srv := plain
				switch e := endings[n]; {
				case e.around != nil && e.gone:
					srv = impatient
				case e.around != nil:
					srv = patient
				}
				plays.request(s, srv, user, key, n)
			}
		})
	}
	workers.Wait()
	if s.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	if err := core.Drain(ctx); err != nil {
		s.Fatal(err)
	}

	for user, n := range plays.kept {
		if n > 1 {
			s.Errorf("%s has bought %d times", user, n)
		}
	}
	s.wantFree(exports)
	sold := int64(len(plays.kept))
	status, err := purchase.Status(ctx, "t1")
	if err != nil || status.Held != 0 || status.Sold != sold || status.Left+status.Sold != status.Stock {
		s.Errorf("the sale is %+v, %v, want %d sold and none held", status, err, sold)
	}
	if r, err := purchase.Verify(ctx, "t1"); err != nil || !r.Consistent() {
		s.Errorf("%v\n%v", r, err)
	}
	if tally, err := votes.Tally(ctx, "t1"); err != nil || tally["red"] != sold || len(tally) > 1 {
		s.Errorf("the tally is %v, %v, want %d", tally, err, sold)
	}
	if sold == 0 || plays.keyed == 0 || plays.unkeyed == 0 || sold == int64(plays.keyed+plays.unkeyed) {
		s.Errorf("of %d requests %d got in with a key and %d without, and %d ended well: that shows nothing",
			requests, plays.keyed, plays.unkeyed, sold)
	}
}

// plays has the results of the requests.
type plays struct {
	mu      sync.Mutex
	last    int
	running map[string]chan struct{} // requests that have been sent, closed when their handler runs
	kept    map[string]int           // how often each user's request got in and ended well

	keyed, unkeyed int // requests that got in
}

// request sends one request with this ending and waits until one has ended.
func (p *plays) request(s *scene, srv *server, user, key string, ending int) {
	p.mu.Lock()
	p.last++
	number, running := strconv.Itoa(p.last), make(chan struct{})
	p.running[number] = running
	p.mu.Unlock()

	ctx, cancel := context.WithCancelCause(s.Context())
	defer cancel(nil)
	if e := endings[ending]; e.gone && e.around == nil {
		go func() {
			select {
			case <-running:
				cancel(errors.New("the user has closed the page"))
			case <-ctx.Done(): // it was refused
			}
		}()
	}
	srv.do(ctx, http.MethodPost, UserHeader+": "+user, "Idempotency-Key: "+key,
		"X-Number: "+number, "X-Ending: "+strconv.Itoa(ending))
	srv.wait()
}

// handle ends a request in the way that the request names.
func (p *plays) handle(c Context) {
	header := c.Request().Header
	n, err := strconv.Atoi(header.Get("X-Ending"))
	if err != nil {
		panic(err)
	}
	e := endings[n]
	if e.begun {
		begin(c)
	}
	p.mu.Lock()
	keeps := !e.failed()
	if header.Get("Idempotency-Key") == "" {
		p.unkeyed++
	} else {
		p.keyed++
	}
	if keeps {
		p.kept[header.Get(UserHeader)]++
	}
	close(p.running[header.Get("X-Number")])
	p.mu.Unlock()
	if e.gone {
		<-c.Request().Context().Done()
	}
	e.handler(c)
}
