package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// each runs f on a redis-server, and on miniredis where redistest.AlsoMini says so.
func each(t *testing.T, f func(t *testing.T, b redistest.Backend)) {
	if redistest.AlsoMini() {
		t.Run("miniredis", func(t *testing.T) { f(t, redistest.Mini(t)) })
	}
	t.Run("redis", func(t *testing.T) { f(t, redistest.Single(t)) })
}

// start makes the demo on a backend and opens its sale.
func start(t testing.TB, b redistest.Backend, perIP limit.Limit, options ...core.Option) *app {
	t.Helper()
	// A test machine may be busy, and the deadline is not under test.
	options = append(options, core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute))
	a := newApp(core.New(b.Client, options...), perIP)
	if opened, err := a.open(t.Context()); err != nil || !opened {
		t.Fatalf("open: %t, %v; want a new sale", opened, err)
	}
	return a
}

// send sends a request; header is a list of names and values.
func send(h http.Handler, method, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// want checks the status of an answer and, if part is not empty, that the body contains it.
func want(t testing.TB, w *httptest.ResponseRecorder, status int, part string) {
	t.Helper()
	if w.Code != status || !strings.Contains(w.Body.String(), part) {
		t.Fatalf("got %d %s, want %d and %q", w.Code, w.Body, status, part)
	}
}

// retryAfter returns the Retry-After of an answer.
func retryAfter(t testing.TB, w *httptest.ResponseRecorder) time.Duration {
	t.Helper()
	seconds, err := strconv.Atoi(w.Header().Get("Retry-After"))
	if err != nil {
		t.Fatalf("Retry-After: %v", err)
	}
	return time.Duration(seconds) * time.Second
}

// vote posts a form, as the page and the printed lines do.
func vote(a *app, poll, choice, user string) *httptest.ResponseRecorder {
	form := url.Values{"choice": {choice}, "user": {user}}
	r := httptest.NewRequest(http.MethodPost, "/polls/"+poll+"/votes", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	return w
}

func TestThe101stRequestInAMinuteWaits(t *testing.T) {
	b := redistest.Mini(t)
	begin := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	now := begin
	b.Mini.SetTime(now)
	a := start(t, b, limit.PerMinute(100), core.WithRefusalMemory(0)) // the test moves the server's clock only
	for range 100 {
		want(t, send(a, "GET", "/hello"), 200, "hello")
		now = now.Add(100 * time.Millisecond)
		b.Mini.SetTime(now)
	}
	refused := send(a, "GET", "/hello")
	want(t, refused, 429, `"reason":"limited"`)
	wait := retryAfter(t, refused)
	if now.Add(wait) != begin.Add(time.Minute) {
		t.Errorf("Retry-After is %v, %v after the first request; want the rest of its minute", wait, now.Sub(begin))
	}

	b.Mini.SetTime(now.Add(wait - time.Millisecond))
	want(t, send(a, "GET", "/hello"), 429, "")
	b.Mini.SetTime(now.Add(wait))
	want(t, send(a, "GET", "/hello"), 200, "") // the first request is a minute old,
	want(t, send(a, "GET", "/hello"), 429, "") // the second is not
}

func TestThe101stRequestInAMinuteWaitsOnARealServer(t *testing.T) {
	a := start(t, redistest.Single(t), limit.PerMinute(100))
	for range 100 {
		want(t, send(a, "GET", "/hello"), 200, "hello")
	}
	refused := send(a, "GET", "/hello")
	want(t, refused, 429, `"reason":"limited"`)
	if wait := retryAfter(t, refused); wait < time.Second || wait > time.Minute {
		t.Errorf("Retry-After is %v, want 1 to 60 seconds", wait)
	}
}

func TestOneMoreRequestPassesAfterTheWindow(t *testing.T) {
	each(t, func(t *testing.T, b redistest.Backend) {
		a := start(t, b, limit.Per(3, 400*time.Millisecond))
		refused := send(a, "GET", "/hello")
		for i := 0; refused.Code == 200 && i < 1000; i++ { // a machine that stalls may need more than 4
			refused = send(a, "GET", "/hello")
		}
		want(t, refused, 429, "")
		if wait := retryAfter(t, refused); wait != time.Second {
			t.Errorf("Retry-After is %v, want 400 ms rounded up to 1 s", wait)
		}
		redistest.Eventually(t, time.Minute, func() bool {
			return send(a, "GET", "/hello").Code == 200
		}, "a request passes after the window")
	})
}

func TestOnlyHelloCountsAgainstTheLimit(t *testing.T) {
	a := start(t, redistest.Mini(t), limit.PerMinute(1))
	for range 3 {
		want(t, send(a, "GET", "/"), 200, "")
		want(t, send(a, "GET", "/polls/final"), 200, "")
		want(t, send(a, "GET", "/sales/ticket"), 200, "")
	}
	want(t, vote(a, "final", "red", "alice"), 201, "")
	want(t, send(a, "POST", "/sales/ticket/orders", "X-User", "alice"), 201, "")
	want(t, send(a, "GET", "/hello"), 200, "")
	want(t, send(a, "GET", "/hello"), 429, "")
}

func TestTheAddressIsThePeers(t *testing.T) {
	a := start(t, redistest.Mini(t), limit.PerMinute(1))
	want(t, send(a, "GET", "/hello"), 200, "")
	for _, name := range []string{"X-Forwarded-For", "Forwarded", "X-Real-IP", "True-Client-IP",
		"CF-Connecting-IP"} {
		want(t, send(a, "GET", "/hello", name, "198.51.100.7"), 429, "")
	}
}

func TestASecondVoteDoesNotCount(t *testing.T) {
	each(t, func(t *testing.T, b redistest.Backend) {
		a := start(t, b, limit.PerMinute(100))
		want(t, vote(a, "final", "red", "alice"), 201, `"choice":"red"`)
		want(t, vote(a, "final", "red", "alice"), 409, `"choices":["red"]`)
		want(t, vote(a, "final", "blue", "alice"), 409, `"choices":["red"]`)
		want(t, send(a, "GET", "/polls/final"), 200, `{"blue":0,"green":0,"red":1}`)

		want(t, vote(a, "final", "pink", "bob"), 400, "invalid")
		want(t, send(a, "POST", "/polls/final/votes", "X-User", "bob"), 400, "no_key")
		want(t, vote(a, "other", "red", "bob"), 409, "not_open")
		want(t, vote(a, "final", "red", ""), 400, "Say who you are")
		want(t, send(a, "GET", "/polls/final"), 200, `{"blue":0,"green":0,"red":1}`)
	})
}

func TestARetryGetsTheSameAnswer(t *testing.T) {
	each(t, func(t *testing.T, b redistest.Backend) {
		a := start(t, b, limit.PerMinute(100))
		order := func(user, key string) *httptest.ResponseRecorder {
			return send(a, "POST", "/sales/ticket/orders", "X-User", user, "Idempotency-Key", key)
		}
		first := order("alice", `"1"`)
		want(t, first, 201, `"reservation":"alice|1","state":"sold"`)
		for range 3 {
			again := order("alice", `"1"`)
			want(t, again, 201, first.Body.String())
			if again.Header().Get("Idempotent-Replayed") != "true" {
				t.Error("the retry has no Idempotent-Replayed: true")
			}
		}
		want(t, send(a, "GET", "/sales/ticket"), 200, `"left":99,"held":0,"sold":1}`)

		want(t, order("alice", `"2"`), 409, "duplicate")
		want(t, order("bob", `"1"`), 201, `"reservation":"bob|1"`) // each buyer has keys of their own
		want(t, send(a, "GET", "/sales/ticket"), 200, `"left":98,"held":0,"sold":2}`)
		want(t, send(a, "POST", "/sales/other/orders", "X-User", "bob"), 503, "not_ready")
	})
}

func Test200BuyersOf100Tickets(t *testing.T) {
	each(t, func(t *testing.T, b redistest.Backend) {
		a := start(t, b, limit.PerMinute(100))
		order := func(buyer int) *httptest.ResponseRecorder {
			return send(a, "POST", "/sales/ticket/orders",
				"X-User", fmt.Sprint("buyer", buyer), "Idempotency-Key", fmt.Sprintf(`"order-%d"`, buyer))
		}
		var answers [200]*httptest.ResponseRecorder
		var all sync.WaitGroup
		begin := make(chan struct{})
		for i := range answers {
			all.Go(func() {
				<-begin
				answers[i] = order(i)
			})
		}
		close(begin)
		all.Wait()

		count := map[int]int{}
		for _, w := range answers {
			count[w.Code]++
		}
		if count[201] != 100 || count[409] != 100 {
			t.Errorf("statuses %v, want 100 times 201 and 100 times 409", count)
		}
		want(t, send(a, "GET", "/sales/ticket"), 200, `"stock":100,"left":0,"held":0,"sold":100}`)

		// Winners and losers get the same answers again, also after the last ticket.
		for i, w := range answers {
			part := w.Body.String()
			if w.Code == 409 {
				part = `"reason":"sold_out"`
			}
			want(t, order(i), w.Code, part)
		}
		want(t, send(a, "GET", "/sales/ticket"), 200, `"stock":100,"left":0,"held":0,"sold":100}`)
	})
}

func TestThePageShowsWhereThingsStand(t *testing.T) {
	a := start(t, redistest.Mini(t), limit.PerMinute(100))
	want(t, vote(a, "final", "red", "alice"), 201, "")
	want(t, send(a, "POST", "/sales/ticket/orders", "X-User", "alice"), 201, "")
	page := send(a, "GET", "/")
	want(t, page, 200, `<td data-figure="tally.red">1</td>`)
	want(t, page, 200, `<td data-figure="tally.blue">0</td>`)
	want(t, page, 200, `<td data-figure="sale.left">99</td>`)
	want(t, page, 200, `<td data-figure="sale.sold">1</td>`)

	// The buttons are those of a form, for browsers without scripts.
	r := httptest.NewRequest(http.MethodPost, "/polls/final/votes", strings.NewReader("user=bob&choice=blue"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	want(t, w, 201, `{"choice":"blue","poll":"final","user":"bob"}`)
}

// Promise (Outages): No error reaches the client's body.
func TestClientsDoNotSeeWhatIsWrongWithRedis(t *testing.T) {
	b := redistest.Mini(t)
	a := start(t, b, limit.PerMinute(100))
	b.Mini.SetError("LOADING /var/lib/secret")
	defer b.Mini.SetError("")
	for range 100 { // the process goes on with the limit
		want(t, send(a, "GET", "/hello"), 200, "hello")
	}
	want(t, send(a, "GET", "/hello"), 429, `"reason":"limited"`)
	for _, w := range []*httptest.ResponseRecorder{
		vote(a, "final", "red", "alice"),
		send(a, "POST", "/sales/ticket/orders", "X-User", "alice"),
		send(a, "GET", "/polls/final"),
		send(a, "GET", "/sales/ticket"),
		send(a, "GET", "/"),
		send(a, "GET", "/export", "X-User", "alice"),
	} {
		if w.Code != 503 || w.Header().Get("Retry-After") == "" || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("got %d %s, want 503 with Retry-After and without the cause", w.Code, w.Body)
		}
	}
}

// TestTheTallyIsJSON: programs read the tally too.
func TestTheTallyIsJSON(t *testing.T) {
	a := start(t, redistest.Mini(t), limit.PerMinute(100))
	got := data[struct {
		Poll  string
		Tally map[string]int64
	}](t, send(a, "GET", "/polls/final").Body.Bytes())
	if got.Poll != "final" || len(got.Tally) != len(choices) {
		t.Errorf("got %+v", got)
	}
}
