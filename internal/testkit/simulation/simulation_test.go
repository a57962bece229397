//go:build !race

package simulation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

const (
	most     = 10 // requests of a client per minute
	clients  = 6
	hold     = 2 * time.Minute
	recovery = 2 * time.Second // docs/contracts.md: Redis is used again within 2 s of being back
)

// TestHoursOfFaults runs two processes for hours of a fake clock (minutes in a normal run), while the network
// is slow, loses replies, and breaks for up to 20 s every few minutes. Afterwards nobody was let through more
// often than the limit says, each yes is a sale, nothing is held, and Redis was used again within 2 s of each
// outage. GATEHOUSE_SEED runs one seed again.
//
// Promise (Outages): Over hours of outages no client gets more than the limit, each yes is a sale, and
// nothing stays held.
func TestHoursOfFaults(t *testing.T) {
	seeds, length, more := []uint64{rand.Uint64()}, 10*time.Minute, 0
	switch {
	case redistest.Soak():
		length, more = 2*time.Hour, 7
	case redistest.All():
		more = 2
	}
	for range more {
		seeds = append(seeds, rand.Uint64())
	}
	if text := os.Getenv("GATEHOUSE_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = []uint64{seed}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSimulation(t, seed, func(_, _ *pipeline.Rule) {})
				s.run(t, length)
				for _, finding := range s.findings {
					t.Error(finding)
				}
			})
		})
	}
}

// TestWrongRulesAreFound changes the rules so that they break what the simulation looks for.
func TestWrongRulesAreFound(t *testing.T) {
	redistest.LeftToCI(t)
	for name, wrong := range map[string]func(limit, sale *pipeline.Rule){
		"outages are open":  func(limit, _ *pipeline.Rule) { limit.OnOutage = core.FailOpen },
		"sales are undone":  func(_, sale *pipeline.Rule) { sale.Failed = func(int) bool { return true } },
		"no sale is undone": func(_, sale *pipeline.Rule) { sale.Failed = func(int) bool { return false } },
	} {
		t.Run(name, func(t *testing.T) {
			found := 0
			for range 20 { // one run may be too short for the fault that it takes
				synctest.Test(t, func(t *testing.T) {
					s := newSimulation(t, rand.Uint64(), wrong)
					s.run(t, 10*time.Minute)
					found = len(s.findings)
				})
				if found > 0 {
					return
				}
			}
			t.Error("the simulation has found nothing")
		})
	}
}

// simulation is two processes in front of one Redis.
type simulation struct {
	net       *network
	rng       *rand.Rand
	engines   []*core.Engine
	sales     []*seckill.Guard
	handlers  []http.Handler
	unsettled func() int

	mu       sync.Mutex
	passages map[string][]passage
	answers  map[int]int
	ran      int
	perhaps  int64 // handlers whose yes was replaced, so that the sale stands or does not
	findings []string
}

// find notes what is wrong.
func (s *simulation) find(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.findings = append(s.findings, fmt.Sprintf(format, args...))
}

// passage is a request that the limit let through: at some moment from begin on, and before the handler ran.
type passage struct{ begin, handler time.Time }

// ending is what the handler does, which the client asks for.
type ending struct {
	status int
	takes  time.Duration
	panics bool
}

type observer struct {
	mu        sync.Mutex
	unsettled int
}

func (o *observer) Observe(_ context.Context, e core.Event) {
	if errors.Is(e.Err, core.ErrUnsettled) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.unsettled++
	}
}

func newSimulation(t *testing.T, seed uint64, change func(limit, sale *pipeline.Rule)) *simulation {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	s := &simulation{
		net: newNetwork(m, rand.New(rand.NewPCG(seed, 1))), rng: rand.New(rand.NewPCG(seed, 2)),
		passages: map[string][]passage{}, answers: map[int]int{},
	}
	seen := &observer{}
	s.unsettled = func() int { seen.mu.Lock(); defer seen.mu.Unlock(); return seen.unsettled }
	t.Cleanup(m.Close)
	t.Cleanup(s.net.crash) // go-redis may leave a connection that it was making when its client was closed
	for range 2 {
		rdb := redis.NewClient(&redis.Options{
			Addr: "192.0.2.1:6379", Dialer: s.net.Dial, ContextTimeoutEnabled: true, DialerRetries: 1, PoolSize: 3,
			DisableIdentity: true,
		})
		t.Cleanup(func() { _ = rdb.Close() })
		e := core.New(rdb, core.WithObserver(seen), core.WithLogger(slog.New(slog.DiscardHandler)),
			core.WithClock(time.Now)) // the bubble's
		sale := seckill.New(e, "sale", seckill.Options{})
		s.engines, s.sales = append(s.engines, e), append(s.sales, sale)
		perClient := pipeline.Rule{
			Guard: limit.NewSlidingWindow(e, "limit", limit.PerMinute(most)), Who: keyfuncs.Header("Client"),
			OnOutage: core.FailClosed,
		}
		buy := pipeline.Rule{
			Guard: sale, Who: keyfuncs.Header("Client"), What: keyfuncs.Header("Item"), ID: keyfuncs.Header("Order"),
		}
		change(&perClient, &buy)
		s.handlers = append(s.handlers, s.handler(nethttpmw.HTTP(perClient, buy)))
	}
	return s
}

type requestKey struct{}

// request is one request: what its handler is to do, and when it ran.
type request struct {
	ending
	ran time.Time
}

func (s *simulation) handler(guarded func(http.Handler) http.Handler) http.Handler {
	return guarded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.Context().Value(requestKey{}).(*request)
		q.ran = time.Now()
		<-time.After(q.takes)
		if q.panics {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(q.status)
	}))
}

// ask makes a request.
func (s *simulation) ask(number int, client string, process int, end ending) {
	q := &request{ending: end}
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r = r.WithContext(context.WithValue(r.Context(), requestKey{}, q))
	r.Header.Set("Client", client)
	r.Header.Set("Item", "tv")
	r.Header.Set("Order", fmt.Sprint(number))
	w, begin := httptest.NewRecorder(), time.Now()
	status := http.StatusInternalServerError
	func() {
		defer func() { _ = recover() }() // as a server does
		s.handlers[process].ServeHTTP(w, r)
		status = w.Code
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[status]++
	if q.ran.IsZero() {
		return
	}
	s.ran++
	// the sale was not confirmed, and all was given back that could be
	if status == http.StatusServiceUnavailable {
		s.perhaps++
	} else {
		s.passages[client] = append(s.passages[client], passage{begin, q.ran})
	}
}

// end draws what a handler does.
func (s *simulation) end() ending {
	e := ending{status: http.StatusCreated, takes: time.Duration(s.rng.IntN(50)) * time.Millisecond}
	switch s.rng.IntN(20) {
	case 0:
		e.status = http.StatusInternalServerError
	case 1:
		e.panics = true
	case 2:
		e.takes = time.Duration(s.rng.IntN(30)) * time.Second
	}
	return e
}

func (s *simulation) run(t *testing.T, length time.Duration) {
	s.net.heal(true)
	const stock = 100_000
	terms := seckill.Sale{Stock: stock, PerBuyer: stock, Hold: hold}
	if _, err := s.sales[0].Open(t.Context(), "tv", terms); err != nil {
		t.Fatal(err)
	}
	s.net.heal(false)
	stop := time.Now().Add(length)
	var all sync.WaitGroup
	faults := rand.New(rand.NewPCG(s.rng.Uint64(), 3))
	all.Go(func() { s.breakThings(t, faults, stop) })
	for number := 0; time.Now().Before(stop); number++ {
		<-time.After(time.Duration(s.rng.IntN(1500)) * time.Millisecond)
		client, process, end := fmt.Sprint("client ", s.rng.IntN(clients)), s.rng.IntN(2), s.end()
		all.Go(func() { s.ask(number, client, process, end) })
	}
	all.Wait()
	s.net.heal(true)
	if err := core.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	s.wantWithinTheLimit()
	s.wantSettled(t)
	t.Logf("%d handlers ran; answers %v", s.ran, s.answers)
}

// breakThings begins an outage every few minutes, and wants Redis to be used soon after it.
func (s *simulation) breakThings(t *testing.T, rng *rand.Rand, stop time.Time) {
	for time.Now().Before(stop) {
		<-time.After(time.Duration(20+rng.IntN(100)) * time.Second)
		kind := "crash"
		if rng.IntN(2) == 0 {
			kind = "hang"
			s.net.hang()
		} else {
			s.net.crash()
		}
		lasted := time.Duration(1+rng.IntN(20_000)) * time.Millisecond
		<-time.After(lasted)
		s.net.heal(true)
		s.wantUsedAgain(t, kind, lasted)
		s.net.heal(false)
	}
}

// wantUsedAgain wants a call to be answered within the time of recovery. It asks again and again: whoever asks
// at the very moment of a breaker's probe is refused, and the requests may come too seldom to have had one.
func (s *simulation) wantUsedAgain(t *testing.T, kind string, lasted time.Duration) {
	healed := time.Now()
	<-time.After(recovery / 2)
	for i, sale := range s.sales {
		for {
			_, err := sale.Status(t.Context(), "tv")
			if err == nil {
				break
			}
			if took := time.Since(healed); took > recovery {
				s.find("process %d: %v after a %s of %v, Redis is not used: %v", i, took, kind, lasted, err)
				break
			}
			<-time.After(50 * time.Millisecond)
		}
	}
}

// wantWithinTheLimit wants no client to have more passages than the limit within a window. A passage counts
// at some moment between its two ends.
func (s *simulation) wantWithinTheLimit() {
	for client, all := range s.passages {
		slices.SortFunc(all, func(a, b passage) int { return a.begin.Compare(b.begin) })
		for i := range all[:max(len(all)-most, 0)] {
			last := all[i].handler
			for _, p := range all[i : i+most+1] {
				if p.handler.After(last) {
					last = p.handler
				}
			}
			if within := last.Sub(all[i].begin); within < time.Minute {
				s.find("%s was let through %d times within %v", client, most+1, within)
			}
		}
	}
}

// wantSettled wants each yes to be a sale, and no unit to be held once the holds have ended.
func (s *simulation) wantSettled(t *testing.T) {
	<-time.After(hold)
	sale := s.sales[0]
	for {
		n, err := sale.Sweep(t.Context(), "tv")
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
	}
	v, err := sale.Verify(t.Context(), "tv")
	if err != nil || !v.Consistent() {
		s.find("%v, %v", v, err)
	}
	yes, perhaps := int64(s.answers[http.StatusCreated]), s.perhaps
	if v.Counters.Held != 0 || v.Counters.Sold < yes || v.Counters.Sold > yes+perhaps {
		s.find("%d clients heard yes, %d perhaps were to, and the sale has %+v", yes, perhaps, v.Counters)
	}
	if n := s.unsettled(); n != 0 {
		s.find("%d claims were never settled", n)
	}
}
