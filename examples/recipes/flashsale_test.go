package recipes

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/waitingroom"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/timed"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const (
	crowd    = 300 // browsers
	capacity = 25
	stock    = 60
)

// flashSale is the recipe on a server, and what its visitors have seen.
type flashSale struct {
	testing.TB
	home   string
	dials  http.RoundTripper
	inside atomic.Int64

	mu     sync.Mutex
	most   int64                      // inside at a time, as visitors know
	paid   map[string]map[string]bool // reservations by user
	answer map[string]int
}

// shopper is a browser. It has cookies of its own.
type shopper struct {
	*flashSale
	user, address string
	cookies       http.CookieJar
	leaves, pays  bool
}

// TestACrowdComesToAFlashSale: hundreds of browsers poll, at most the capacity is inside, each unit is sold
// once, nobody gets two, and who still waits then is told that it is sold out.
func TestACrowdComesToAFlashSale(t *testing.T) {
	redistest.LeftToCI(t)
	timed.Test(t, 500*time.Millisecond, aCrowdComes) // buyers hold a unit for two seconds
}

func aCrowdComes(t *timed.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	b := redistest.Single(t)
	b.Client = b.NewClient(t)
	calls := new(roomCalls)
	b.Client.AddHook(calls)
	gate := guardtest.NewEngine(b)
	t.Cleanup(func() { _ = gate.Drain(context.Background()) }) // of the room's last call
	sale := seckill.New(gate, "sale", seckill.Options{Keep: time.Minute})
	room := waitingroom.New(gate, "shop", waitingroom.Options{
		Capacity: capacity, Pass: 10 * time.Second, Poll: time.Second, Keep: time.Minute,
		Secrets: [][]byte{[]byte("a secret of sixteen bytes")}, Over: SoldOut(sale, "tv"),
	})
	if _, err := sale.Open(t.Context(), "tv", seckill.Sale{Stock: stock, Hold: 2 * time.Second}); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewTLSServer(asUser(FlashSale(gate, room, sale, keyfuncs.TrustProxies("127.0.0.1/32"))))
	t.Cleanup(server.Close)
	f := &flashSale{TB: t, home: server.URL, paid: map[string]map[string]bool{}, answer: map[string]int{},
		dials: server.Client().Transport}

	var look, all sync.WaitGroup
	look.Go(func() { watch(t, room) })
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for i := range crowd {
		jar, err := cookiejar.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		s := &shopper{flashSale: f, user: fmt.Sprint("user", i%200), address: fmt.Sprintf("198.51.100.%d", i%250),
			cookies: jar, leaves: rng.IntN(100) < 15, pays: rng.IntN(100) < 95}
		all.Go(func() { s.shop(ctx) })
	}
	look.Wait()
	before := calls.Load()
	all.Wait()
	asked := calls.Load() - before

	t.Logf("%d inside at a time; %v; %d calls about the room since it was closed", f.most, f.answer, asked)
	status, err := sale.Status(t.Context(), "tv")
	if err != nil || status.Sold != stock || status.Left != 0 || status.Held != 0 {
		t.Errorf("%+v, %v: want all sold", status, err)
	}
	for user, reservations := range f.paid {
		if len(reservations) != 1 {
			t.Errorf("%s has bought %d units", user, len(reservations))
		}
	}
	if len(f.paid) != stock {
		t.Errorf("%d buyers have paid, want %d", len(f.paid), stock)
	}
	if f.most > capacity || f.most < capacity/2 {
		t.Errorf("%d were inside at a time, of %d", f.most, capacity)
	}
	if told := f.answer["closed"]; told < 50 || asked > int64(told) {
		t.Errorf("%d were told that it is sold out, with %d calls", told, asked)
	}
	bot := &shopper{flashSale: f, user: "bot", address: "203.0.113.9"}
	for range 300 {
		bot.send(ctx, http.MethodGet, "", nil)
	}
	if got := bot.send(ctx, http.MethodGet, "", nil); got.reason != "limited" {
		t.Errorf("request 301 from an address, each of which was refused: %+v", got)
	}
}

// watch looks at the room until it is closed: never more are inside and called than fit.
func watch(t testing.TB, room *waitingroom.Guard) {
	looks := 0
	redistest.Eventually(t, 2*time.Minute, func() bool {
		s, err := room.Peek(t.Context())
		if err != nil || s.Inside+s.Called > capacity {
			t.Errorf("%+v, %v", s, err)
		}
		looks++
		return s.State == "closed" && s.Text == "sold out"
	}, "the room is closed")
	t.Logf("%d looks at the room", looks)
}

// shop comes, waits, buys and pays.
func (s *shopper) shop(ctx context.Context) {
	for ctx.Err() == nil {
		page := s.send(ctx, http.MethodGet, "", nil)
		switch {
		case page.status == http.StatusOK:
			n := s.inside.Add(1)
			s.mu.Lock()
			s.most = max(s.most, n)
			s.mu.Unlock()
			how := s.buy(ctx, page.field("purchase"))
			if how != "waiting" {
				s.count(how)
				return
			}
		case page.reason != "waiting":
			if page.reason == "closed" && page.text != "sold out" {
				s.Errorf("%s is told %q", s.user, page.text)
			}
			s.count(page.reason)
			return
		case s.leaves:
			s.count("left the line")
			return
		default:
			page.wait(ctx)
		}
	}
	s.Errorf("%s is not done: %v", s.user, ctx.Err())
}

// buy clicks twice, and pays. While all units are held, it tries again for a while.
func (s *shopper) buy(ctx context.Context, purchase url.Values) (how string) {
	inside := sync.OnceFunc(func() { s.inside.Add(-1) })
	defer inside()
	var order answer
	for range 8 {
		order = s.send(ctx, http.MethodPost, "/orders", purchase)
		if order.reason != "sold_out" {
			break
		}
		answer{after: 500 * time.Millisecond}.wait(ctx)
	}
	if order.status != http.StatusOK {
		return order.reason
	}
	held := order.field("reservation")
	own := strings.HasSuffix(held.Get("reservation"), purchase.Get("purchase")) // not of the other browser
	if again := s.send(ctx, http.MethodPost, "/orders", purchase); own && again.status == http.StatusOK &&
		again.field("reservation").Encode() != held.Encode() {
		s.Errorf("%s holds %v, and after a second click %v", s.user, held, again.field("reservation"))
	}
	if !s.pays {
		return "did not pay"
	}
	inside() // the payment gives the place back
	if done := s.send(ctx, http.MethodPost, "/payments", held); done.status != http.StatusOK {
		return "paid too late"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paid[s.user] == nil {
		s.paid[s.user] = map[string]bool{}
	}
	s.paid[s.user][held.Get("reservation")] = true
	return "paid"
}

func (s *shopper) count(how string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer[how]++
}

// answer is what a browser gets.
type answer struct {
	status       int
	after        time.Duration
	reason, text string
	body         string
}

func (s *shopper) send(ctx context.Context, method, path string, form url.Values) (a answer) {
	r, err := http.NewRequestWithContext(ctx, method, s.home+"/sales/tv"+path, strings.NewReader(form.Encode()))
	if err != nil {
		s.Error(err)
		return a
	}
	r.Header.Set("X-User", s.user)
	r.Header.Set("X-Forwarded-For", s.address)
	r.Header.Set("Accept", "application/problem+json")
	r.Header.Set("User-Agent", "browser of "+s.user)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	w, err := (&http.Client{Transport: s.dials, Jar: s.cookies}).Do(r)
	if err != nil {
		s.Error(err)
		return a
	}
	body, err := io.ReadAll(w.Body)
	_ = w.Body.Close()
	if err != nil {
		s.Error(err)
	}
	var problem struct{ Reason, Text string }
	_ = json.Unmarshal(body, &problem) // pages are none
	after, _ := strconv.Atoi(w.Header.Get("Retry-After"))
	return answer{w.StatusCode, time.Duration(after) * time.Second, problem.Reason, problem.Text, string(body)}
}

// wait is a browser's timer.
func (a answer) wait(ctx context.Context) {
	timer := time.NewTimer(a.after)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// field returns the hidden field of a page, as the browser sends it.
func (a answer) field(name string) url.Values {
	m := regexp.MustCompile(`name="` + name + `" value="([^"]+)"`).FindStringSubmatch(a.body)
	if m == nil {
		return nil
	}
	return url.Values{name: {html.UnescapeString(m[1])}}
}

// roomCalls counts the calls of scripts about the room.
type roomCalls struct{ atomic.Int64 }

// DialHook implements redis.Hook.
func (*roomCalls) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (c *roomCalls) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 3 && strings.Contains(fmt.Sprint(args[3]), ":waitingroom:") {
			c.Add(1)
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (*roomCalls) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
