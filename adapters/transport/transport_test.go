package transport_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/adapters/transport"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/budget"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

func TestMain(m *testing.M) { redistest.Main(m) }

var account = core.Attempt{Actor: "account-7"}

// partner is a partner's server, which counts what comes.
type partner struct {
	*httptest.Server
	mu   sync.Mutex
	came []time.Time
}

func newPartner(t *testing.T, answer http.HandlerFunc) *partner {
	t.Helper()
	p := &partner{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.came = append(p.came, time.Now())
		p.mu.Unlock()
		if answer != nil {
			answer(w, r)
		}
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *partner) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.came)
}

// rule is a rule for the account.
func rule(g core.Guard, most time.Duration) transport.Rule {
	return transport.Rule{Guard: g, Who: keyfuncs.Const("account-7"), Most: most}
}

// client returns a client with connections of its own.
func client(t *testing.T, rules ...transport.Rule) *http.Client {
	t.Helper()
	base := http.DefaultTransport.(*http.Transport).Clone()
	c := &http.Client{Transport: transport.New(base, rules...)}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// hasty is for a client of a Redis that is away: it does not ask again.
func hasty(o *redis.UniversalOptions) { o.MaxRetries, o.DialerRetries = -1, 1 }

// get gets a page and returns its status.
func get(c *http.Client, url string) (int, error) {
	resp, err := c.Get(url)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, errors.Join(err, resp.Body.Close())
}

// wantLimited wants an error that says when to try again.
func wantLimited(t *testing.T, err error, least, most time.Duration, paused bool) {
	t.Helper()
	var limited *transport.LimitedError
	var refused *core.Refused
	if !errors.As(err, &limited) || limited.RetryAfter < least || limited.RetryAfter > most ||
		limited.Paused != paused || limited.Guard != "partner" || !errors.As(err, &refused) {
		t.Errorf("%v: want a LimitedError for %v to %v", err, least, most)
	}
}

func left(t *testing.T, g *limit.SlidingWindow) int64 {
	t.Helper()
	d, err := g.Peek(t.Context(), account)
	if err != nil {
		t.Error(err)
	}
	return d.Remaining
}

// TestRequestsKeepTheLimit: two processes send more than the partner allows, and wait.
//
// Promise: A transport sends no more than the limit says, for all processes together. Requests wait for Most,
// or fail at once with a transport.LimitedError.
func TestRequestsKeepTheLimit(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		p := newPartner(t, nil)
		const n, window = 5, 300 * time.Millisecond
		begun := time.Now()
		var all sync.WaitGroup
		for range 2 {
			c := client(t, rule(limit.NewSlidingWindow(guardtest.NewEngine(b), "partner", limit.Per(n, window)),
				time.Minute))
			for range 10 {
				all.Go(func() {
					if status, err := get(c, p.URL); err != nil || status != http.StatusOK {
						t.Errorf("%d, %v", status, err)
					}
				})
			}
		}
		all.Wait()
		for i, came := range p.came { // i+1 units were taken since it began, however late each request came
			if passed := came.Sub(begun); passed < time.Duration(i/n)*window {
				t.Errorf("%d requests came in %v", i+1, passed)
			}
		}
		if p.count() != 20 {
			t.Errorf("%d requests came: want 20", p.count())
		}
	})
}

// TestARequestThatCannotWait fails before it is sent.
func TestARequestThatCannotWait(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		p := newPartner(t, nil)
		g := limit.NewSlidingWindow(guardtest.NewEngine(b), "partner", limit.PerHour(1))
		for _, c := range []*http.Client{client(t, rule(g, 0)), client(t, transport.Rule{
			Guard: g, Who: keyfuncs.Const("account-7"), Most: time.Minute, MaxPause: -1,
		})} {
			if p.count() == 0 {
				if _, err := get(c, p.URL); err != nil {
					t.Fatal(err)
				}
			}
			begun := time.Now()
			_, err := get(c, p.URL)
			wantLimited(t, err, 59*time.Minute, time.Hour, false)
			if took := time.Since(begun); took > 30*time.Second {
				t.Errorf("it took %v", took)
			}
		}
		if p.count() != 1 {
			t.Errorf("%d requests came: want 1", p.count())
		}
	})
}

// closed reports whether a body was closed.
type closed struct {
	io.Reader
	times atomic.Int64
}

func (c *closed) Close() error { c.times.Add(1); return nil }

// roundTrip is a base transport.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestARequestThatWasNotSentGivesItsUnitsBack.
//
// Promise: A request that was not sent gives its units back, and one that was sent does not. The body of a
// request is closed always, and never read or sent again.
func TestARequestThatWasNotSentGivesItsUnitsBack(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		g := limit.NewSlidingWindow(guardtest.NewEngine(b), "partner", limit.PerHour(100))
		var cancel context.CancelFunc // of the request that is sent
		hangs := newPartner(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // else the server does not see that the client has gone
			switch r.URL.Path {
			case "/hangs":
				cancel()
				<-r.Context().Done()
			case "/cut":
				conn, _, err := http.NewResponseController(w).Hijack()
				if err == nil {
					_ = conn.Close()
				}
			case "/fails":
				http.Error(w, "fails", http.StatusInternalServerError)
			}
		})
		nowhere := "http://" + redistest.ClosedAddress(t)
		base := http.DefaultTransport.(*http.Transport).Clone()
		base.DisableKeepAlives = true
		slow := base.Clone()
		slow.DialContext = func(context.Context, string, string) (net.Conn, error) {
			cancel()
			<-t.Context().Done() // the request does not wait for it
			return nil, errors.New("of the test")
		}
		refusing := roundTrip(func(r *http.Request) (*http.Response, error) {
			return nil, errors.Join(errors.New("of the base"), r.Body.Close())
		})
		for _, c := range []struct {
			name, url string
			base      http.RoundTripper
			sent      bool
		}{
			{"nobody listens", nowhere, base, false},
			{"the context ends while it dials", hangs.URL, slow, false},
			{"the answer is a failure", hangs.URL + "/fails", base, true},
			{"the connection ends after the header", hangs.URL + "/cut", base, true},
			{"the context ends after the header", hangs.URL + "/hangs", base, true},
			{"a base that knows no httptrace", hangs.URL, refusing, true},
		} {
			before := left(t, g)
			body := &closed{Reader: strings.NewReader("body")}
			ctx, end := context.WithCancel(t.Context())
			cancel = end
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, body)
			if err != nil {
				t.Fatal(err)
			}
			of := rule(g, 0)
			of.MaxPause = -1
			resp, err := transport.New(c.base, of).RoundTrip(r)
			if err == nil {
				err = resp.Body.Close()
			}
			end()
			want := before
			if c.sent {
				want--
			}
			if got := left(t, g); got != want {
				t.Errorf("%s: %d left (%v): want %d of %d", c.name, got, err, want, before)
			}
			if body.times.Load() == 0 {
				t.Errorf("%s: the body was not closed", c.name)
			}
		}
		over, end := context.WithCancel(t.Context())
		end()
		before := left(t, g)
		r, _ := http.NewRequestWithContext(over, http.MethodPost, hangs.URL, &closed{Reader: strings.NewReader("")})
		if _, err := client(t, transport.Rule{Guard: g, Who: keyfuncs.Const("account-7"), MaxPause: -1}).
			Transport.RoundTrip(r); !errors.Is(err, context.Canceled) || left(t, g) != before {
			t.Errorf("%v, %d left: want that a context that is over takes nothing of %d", err, left(t, g), before)
		}
	})
}

// TestARefusedRequestClosesItsBody, and is not changed.
func TestARefusedRequestClosesItsBody(t *testing.T) {
	t.Parallel()
	g := limit.NewSlidingWindow(core.NewMemory(), "partner", limit.PerHour(1))
	p := newPartner(t, nil)
	c := client(t, rule(g, 0))
	for i := range 2 {
		body := &closed{Reader: strings.NewReader("body")}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL, body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Own", "1")
		header, of := r.Header.Clone(), *r
		resp, err := c.Transport.RoundTrip(r)
		if err == nil {
			err = resp.Body.Close()
		}
		if (i == 0) != (err == nil) || body.times.Load() == 0 {
			t.Errorf("request %d: %v, its body was closed %d times", i, err, body.times.Load())
		}
		if r.Context() != of.Context() || fmt.Sprint(r.Header) != fmt.Sprint(header) || r.Body != of.Body {
			t.Errorf("request %d was changed", i)
		}
	}
}

// TestSeveralRulesAreAllOrNothing: what an earlier rule took comes back when a later one refuses.
func TestSeveralRulesAreAllOrNothing(t *testing.T) {
	e := core.NewMemory()
	wide := limit.NewSlidingWindow(e, "wide", limit.PerHour(10))
	narrow := limit.NewSlidingWindow(e, "partner", limit.PerHour(1))
	p := newPartner(t, nil)
	c := client(t, rule(wide, 0), rule(narrow, 0))
	for i := range 5 {
		if _, err := get(c, p.URL); (i == 0) != (err == nil) {
			t.Errorf("request %d: %v", i, err)
		}
	}
	if got := left(t, wide); got != 9 {
		t.Errorf("%d left: want 9", got)
	}
	if _, err := get(client(t, transport.Rule{Guard: wide, Who: func(*keyfuncs.Request) (string, error) {
		return "", keyfuncs.ErrMissing
	}}), p.URL); !errors.Is(err, keyfuncs.ErrMissing) {
		t.Errorf("%v: want the error of the key function", err)
	}
}

// TestRedirectsCountEach: the partner sees each of them.
func TestRedirectsCountEach(t *testing.T) {
	g := limit.NewSlidingWindow(core.NewMemory(), "partner", limit.PerHour(10))
	p := newPartner(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/end" {
			http.Redirect(w, r, "/end", http.StatusFound)
		}
	})
	if _, err := get(client(t, rule(g, 0)), p.URL); err != nil || left(t, g) != 8 {
		t.Errorf("%v, %d left: want 8", err, left(t, g))
	}
}

// TestAPermitEndsWithTheBody.
//
// Promise: A semaphore's permit comes back when the body of the response is closed or read to its end. A lost
// permit ends the request.
func TestAPermitEndsWithTheBody(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		e := guardtest.NewEngine(b)
		g := semaphore.New(e, "partner", semaphore.Options{Max: 1, Lease: time.Minute})
		p := newPartner(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "a part")
			_ = http.NewResponseController(w).Flush()
			if r.URL.Path == "/long" {
				<-r.Context().Done()
			}
		})
		c := client(t, rule(g, 0))
		first, err := c.Get(p.URL)
		if err != nil {
			t.Fatal(err)
		}
		_, err = get(c, p.URL)
		var limited *transport.LimitedError
		if !errors.As(err, &limited) || limited.Reason != core.ReasonBusy {
			t.Errorf("%v: want that it is busy", err)
		}
		if err := first.Body.Close(); err != nil {
			t.Error(err)
		}
		if _, err := get(c, p.URL); err != nil { // read to its end
			t.Error(err)
		}
		// Its holder asks each second.
		g = semaphore.New(e, "soon", semaphore.Options{Max: 1, Lease: 3 * time.Second})
		c = client(t, rule(g, 0))
		var long *http.Response
		redistest.Eventually(t, time.Minute, func() bool { // else the lease is over before the answer begins
			long, err = c.Get(p.URL + "/long")
			return err == nil
		}, "a request has its permit")
		if _, err := g.Evict(t.Context(), account); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadAll(long.Body); err == nil {
			t.Error("the request goes on without its permit")
		}
		_ = long.Body.Close() // it has failed
	})
}

// TestTheRealPriceIsSpent, by a field of the answer or by its body.
//
// Promise: The real price of a request is charged when its body is closed: by a field of the answer, or by
// transport.Spend.
func TestTheRealPriceIsSpent(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		g := budget.New(guardtest.NewEngine(b), "tokens", budget.Options{Levels: []string{"account"},
			Find: func([]string) ([]budget.Limit, error) {
				return []budget.Limit{{Max: 1000, Window: time.Hour}}, nil
			}})
		p := newPartner(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Tokens", r.URL.Query().Get("tokens"))
			_, _ = io.WriteString(w, "body")
		})
		of := rule(g, 0)
		of.Cost = func(*http.Request) (int64, error) { return 100, nil }
		of.Spent = func(resp *http.Response) (units int64, ok bool) {
			_, err := fmt.Sscan(resp.Header.Get("X-Tokens"), &units)
			return units, err == nil
		}
		c := client(t, of)
		spent := func(url string, want int64, body int64) {
			t.Helper()
			resp, err := c.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			if body > 0 && !transport.Spend(resp.Request.Context(), "tokens", body) {
				t.Error("it is too late to spend")
			}
			if err := resp.Body.Close(); err != nil {
				t.Error(err)
			}
			if transport.Spend(resp.Request.Context(), "tokens", 1) {
				t.Error("it is not too late to spend")
			}
			d, err := g.Peek(t.Context(), account)
			if err != nil || 1000-d.Remaining != want {
				t.Errorf("%s: %d are spent, %v: want %d", url, 1000-d.Remaining, err, want)
			}
		}
		spent(p.URL+"?tokens=7", 7, 0)
		spent(p.URL+"?tokens=none", 107, 0)
		spent(p.URL+"?tokens=none", 157, 50)
	})
}

// TestASpentThatPanics leaves nothing held: the permit comes back, the units count, and the body is closed.
func TestASpentThatPanics(t *testing.T) {
	e := core.NewMemory()
	one := semaphore.New(e, "one", semaphore.Options{Max: 1})
	g := limit.NewSlidingWindow(e, "partner", limit.PerHour(100))
	of := rule(g, 0)
	of.Spent = func(*http.Response) (int64, bool) { panic("of the test") }
	body := &closed{Reader: strings.NewReader("body")}
	base := roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: body}, nil
	})
	for i := range int64(3) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://partner.example", nil)
		if err != nil {
			t.Fatal(err)
		}
		guardtest.WantPanic(t, "of the test", func() {
			if _, err := transport.New(base, rule(one, 0), of).RoundTrip(r); err != nil {
				t.Error(err)
			}
		})
		if got, times := left(t, g), body.times.Load(); got != 99-i || times != i+1 {
			t.Errorf("%d left, and the body was closed %d times: want %d and %d", got, times, 99-i, i+1)
		}
	}
}

// TestOutagesOfRedis: the policy of a rule.
func TestOutagesOfRedis(t *testing.T) {
	t.Parallel()
	b := redistest.Single(t)
	f := redistest.NewFaults(t)
	e := guardtest.NewEngineOver(b, b.NewClientWith(t, f, hasty))
	g := limit.NewSlidingWindow(e, "partner", limit.Per(2, 300*time.Millisecond))
	p := newPartner(t, nil)
	f.Refuse(true)
	shut := rule(g, 0)
	shut.OnOutage, shut.MaxPause = core.FailClosed, -1
	if _, err := get(client(t, shut), p.URL); err == nil || p.count() != 0 {
		t.Errorf("%v, %d requests came: want none", err, p.count())
	}
	open := shut
	open.OnOutage = core.FailOpen
	if _, err := get(client(t, open), p.URL); err != nil || p.count() != 1 {
		t.Errorf("%v, %d requests came: want one", err, p.count())
	}
	local := client(t, rule(g, time.Minute))
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			if _, err := get(local, p.URL); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	f.Heal()
}

// TestASilentRedisIsNoEndOfMost: the time to wait is shorter than a call may take, and the policy holds.
func TestASilentRedisIsNoEndOfMost(t *testing.T) {
	t.Parallel()
	b := redistest.Single(t)
	f := redistest.NewFaults(t)
	e := guardtest.NewEngineOver(b, b.NewClientWith(t, f), core.WithDeadline(100*time.Millisecond))
	p := newPartner(t, nil)
	c := client(t, rule(limit.NewSlidingWindow(e, "partner", limit.PerHour(1000)), 20*time.Millisecond))
	f.Hang(true)
	for range 10 {
		if _, err := get(c, p.URL); err != nil {
			t.Error(err)
		}
	}
	f.Heal()
}

// TestALittleTimeToWait is used, and what is refused afterwards says when to come back.
func TestALittleTimeToWait(t *testing.T) {
	t.Parallel()
	b := redistest.Single(t)
	p := newPartner(t, nil)
	const window = 500 * time.Millisecond
	g := limit.NewSlidingWindow(guardtest.NewEngine(b, core.WithDeadline(10*time.Second)), "partner",
		limit.Per(1, window))
	hurried := rule(g, time.Millisecond)
	hurried.MaxPause = -1
	long, short := client(t, rule(g, 9*time.Second)), client(t, hurried)
	for i := 0; ; i++ {
		if _, err := get(long, p.URL); err != nil {
			t.Fatal(err)
		}
		if _, err := get(short, p.URL); err != nil && i > 0 { // else a window has passed in between
			wantLimited(t, err, time.Nanosecond, window, false)
			return
		}
	}
}

// TestAnUpgradedConnectionCanBeWrittenTo: the body after 101 is an io.Writer, as http.Transport has it.
func TestAnUpgradedConnectionCanBeWrittenTo(t *testing.T) {
	g := semaphore.New(core.NewMemory(), "partner", semaphore.Options{Max: 1})
	p := newPartner(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		line, _ := rw.ReadString('\n')
		_, _ = rw.WriteString(line)
		_ = rw.Flush()
	})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "echo")
	resp, err := client(t, rule(g, 0)).Transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	both, ok := resp.Body.(io.ReadWriter)
	if !ok {
		t.Fatalf("%T is no io.Writer", resp.Body)
	}
	_, _ = io.WriteString(both, "hello\n")
	if line, err := bufio.NewReader(both).ReadString('\n'); err != nil || line != "hello\n" {
		t.Errorf("%q, %v", line, err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
}

// TestMistakesInRules are found at set-up.
func TestMistakesInRules(t *testing.T) {
	e := core.NewMemory()
	g := limit.NewSlidingWindow(e, "partner", limit.PerHour(1))
	guardtest.WantPanic(t, "without a rule", func() { transport.New(nil) })
	guardtest.WantPanic(t, "has no Guard", func() { transport.New(nil, transport.Rule{}) })
	guardtest.WantPanic(t, "has no Who", func() { transport.New(nil, transport.Rule{Guard: g}) })
	guardtest.WantPanic(t, "set 0 or more", func() { transport.New(nil, rule(g, -1)) })
	onRedis := limit.NewSlidingWindow(guardtest.NewEngine(redistest.Single(t)), "partner", limit.PerHour(1))
	transport.New(nil, rule(onRedis, 0))
	guardtest.WantPanic(t, "set it as Pauses of both", func() { transport.New(nil, rule(onRedis, 0)) })
}

// TestKeysOfRequests: host and route of an outgoing request.
func TestKeysOfRequests(t *testing.T) {
	host, route := transport.Host(), transport.Route("GET /users/{id}", "/search/")
	for url, want := range map[string][2]string{
		"http://API.example.com:8080/users/7": {"api.example.com:8080", "GET /users/{id}"},
		"http://api.example.com/search/x":     {"api.example.com", "/search/"},
		"http://api.example.com/else":         {"api.example.com", "other"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		of := &keyfuncs.Request{Request: r}
		h, err1 := host(of)
		p, err2 := route(of)
		if h != want[0] || p != want[1] || err1 != nil || err2 != nil {
			t.Errorf("%s: %q, %q, %v, %v: want %q", url, h, p, err1, err2, want)
		}
	}
}
