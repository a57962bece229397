package recipes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"html"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// newGate makes an engine on a Redis inside the process, whose clock stands still.
func newGate(t *testing.T) (*core.Engine, *miniredis.Miniredis) {
	t.Helper()
	m := miniredis.RunT(t)
	m.ClockTTL(true)
	m.SetTime(time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC))
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	return core.New(rdb, core.WithDeadline(time.Minute)), m // a test machine may be busy
}

// asUser is a login that believes X-User.
func asUser(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(keyfuncs.WithValue(r.Context(), "uid", r.Header.Get("X-User"))))
	})
}

// post sends a request with a body and header fields, "Name: value", or "Host: ..." or "Peer: ...".
func post(t *testing.T, h http.Handler, path, body string, fields ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
	for _, field := range fields {
		switch name, value, _ := strings.Cut(field, ": "); name {
		case "Peer":
			r.RemoteAddr = value + ":50000"
		case "Host":
			r.Host = value
		default:
			r.Header.Add(name, value)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func wantStatus(t *testing.T, w *httptest.ResponseRecorder, status int, what string) {
	t.Helper()
	if w.Code != status {
		t.Errorf("%s: %d %s, want %d", what, w.Code, w.Body, status)
	}
}

func TestLoginCountsFailuresAndLocksNobodyOut(t *testing.T) {
	gate, _ := newGate(t)
	app := Login(gate, []byte("secret"), func(user, password string) bool { return password == "right:"+user })
	login := func(peer, user, password string, cookies ...string) *httptest.ResponseRecorder {
		return post(t, app, "/login", "user="+user+"&password="+password, append([]string{"Peer: " + peer,
			"Content-Type: application/x-www-form-urlencoded"}, cookies...)...)
	}
	const owner = "192.0.2.1"
	for range 50 {
		wantStatus(t, login(owner, "ann", "right:ann"), 204, "successes do not count")
	}
	other := "Cookie: " + strings.SplitN(login(owner, "ann", "right:ann").Header().Get("Set-Cookie"), ";", 2)[0]
	own := "Cookie: " + strings.SplitN(login(owner, "ann", "right:ann").Header().Get("Set-Cookie"), ";", 2)[0]

	statuses := map[int]int{}
	for i := range 100 { // from 100 addresses, in several spellings
		statuses[login(fmt.Sprintf("198.51.100.%d", i), []string{"ann", "Ann", "ANN+"}[i%3], "guess").Code]++
	}
	if statuses[401] != 10 || statuses[429] != 90 {
		t.Errorf("an attacker with many addresses got %v", statuses)
	}
	wantStatus(t, login("198.51.100.200", "ann", "guess", "Cookie: device=forged"), 429, "a forged device")
	wantStatus(t, login(owner, "ann", "right:ann"), 429, "a new device of the owner has to wait")
	wantStatus(t, login(owner, "ann", "right:ann", own), 204, "the owner, on their own device")
	wantStatus(t, login("198.51.100.200", "bob", "guess", own), 401, "a device of ann's is none of bob's")
	wantStatus(t, login("198.51.100.200", "", "guess"), 400, "nobody")

	statuses = map[int]int{}
	for i, spelling := range []string{"bob", "Bob", "BOB", "+bob", "bob+", "%EF%BD%82ob", "%C2%A0bob", "b%6Fb",
		"BoB", "bOB", "boB", "bob%09"} {
		statuses[login(fmt.Sprintf("198.51.101.%d", i), spelling, "guess").Code]++
	}
	if statuses[401] != 9 || statuses[429] != 3 { // one guess came before
		t.Errorf("twelve spellings of bob got %v", statuses)
	}

	statuses = map[int]int{}
	for i := range 100 { // whoever has stolen a device's cookie guessed without end
		statuses[login(fmt.Sprintf("198.51.102.%d", i), "ann", "guess", own).Code]++
	}
	if statuses[401] != 10 || statuses[429] != 90 {
		t.Errorf("a stolen device got %v", statuses)
	}
	wantStatus(t, login(owner, "ann", "right:ann", other), 204, "the owner, on another of their devices")

	statuses = map[int]int{}
	for i := range 30 {
		statuses[login("203.0.113.9", fmt.Sprint("user", i), "guess").Code]++
	}
	if statuses[401] != 20 || statuses[429] != 10 {
		t.Errorf("one address that tries many accounts got %v", statuses)
	}
}

func TestAPIKeysCannotBeInvented(t *testing.T) {
	gate, m := newGate(t)
	keys := Keys{}
	for key, c := range map[string]Customer{
		"k-small": {"small", "free"}, "k-big": {"big", "pro"}, "k-us": {"us", "internal"},
	} {
		keys[sha256.Sum256([]byte(key))] = c
	}
	app := API(gate, keys, http.NotFoundHandler())
	answers := func(n int, key string, fields ...string) map[int]int {
		found := map[int]int{}
		for range n {
			found[post(t, app, "/", "", append(fields, "X-Api-Key: "+key)...).Code]++
		}
		return found
	}
	if got := answers(100, "k-small"); got[404] != 5 || got[429] != 95 {
		t.Errorf("free: %v", got)
	}
	if got := answers(100, "k-big"); got[404] != 50 || got[429] != 50 {
		t.Errorf("pro: %v", got)
	}
	if got := answers(300, "k-us"); got[404] != 300 {
		t.Errorf("internal: %v", got)
	}
	const peer = "Peer: 198.51.100.1"
	before := len(m.Keys())
	invented := map[int]int{}
	for i := range 500 {
		for status, n := range answers(1, fmt.Sprint("made up ", i), peer) {
			invented[status] += n
		}
	}
	if invented[401] != 10 || invented[429] != 490 || len(m.Keys()) != before+1 {
		t.Errorf("500 invented keys got %v, and made %d keys in Redis", invented, len(m.Keys())-before)
	}
	if got := answers(100, "k-us", peer); got[404] != 100 {
		t.Errorf("ten bad keys shut out a customer at their address: %v", got)
	}
}

func TestJSONBodiesAreReadAndLeftForTheHandler(t *testing.T) {
	gate, m := newGate(t)
	app := asUser(Invitations(gate, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	})))
	const body = `{"to":{"email":"Bob@example.org"},"text":"Hello"}`
	if w := post(t, app, "/", body, "X-User: ann"); w.Code != 200 || w.Body.String() != body {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	wantStatus(t, post(t, app, "/", strings.ToLower(body), "X-User: cid"), 200, "the second")
	wantStatus(t, post(t, app, "/", body, "X-User: cid"), 200, "the third")
	wantStatus(t, post(t, app, "/", body, "X-User: dan"), 429, "the fourth mail to Bob")
	const other, long = `{"to":{"email":"eve@example.org"}}`, 5000
	wantStatus(t, post(t, app, "/", other, "X-User: dan"), 200, "to somebody else")
	wantStatus(t, post(t, app, "/", `{"to":{}}`, "X-User: dan"), 400, "to nobody")
	wantStatus(t, post(t, app, "/", `{"to":{"email":"a","email":"b"}}`, "X-User: dan"), 400, "to one of two")
	wantStatus(t, post(t, app, "/", `{"a":"`+strings.Repeat("x", long)+`"}`, "X-User: dan"), 413, "a long body")
	if keys := strings.Join(m.Keys(), " "); strings.Contains(keys, "bob") || strings.Contains(keys, "example") {
		t.Errorf("Redis knows the addresses: %s", keys)
	}
}

func TestEventsOfThePaymentProviderAreHandledOnce(t *testing.T) {
	gate, _ := newGate(t)
	secret, handled, fail := []byte("secret"), 0, false
	app := Payments(gate, secret, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err != nil || len(body) == 0 {
			t.Errorf("the handler got %q, %v", body, err)
		}
		handled++
		if fail {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	deliver := func(body string) *httptest.ResponseRecorder {
		return post(t, app, "/payments", body, "X-Signature: "+hex.EncodeToString(sign(secret, []byte(body))))
	}
	for i := range 3 {
		wantStatus(t, deliver(fmt.Sprintf(`{"id":"e1","attempt":%d}`, i)), 200, "a delivery")
	}
	if handled != 1 {
		t.Errorf("handled %d times", handled)
	}
	fail = true
	wantStatus(t, deliver(`{"id":"e2"}`), 500, "a failure")
	fail = false
	wantStatus(t, deliver(`{"id":"e2"}`), 200, "the same event again")
	wantStatus(t, deliver(`{"id":""}`), 400, "an event without an ID")
	wantStatus(t, post(t, app, "/payments", `{"id":"e3"}`, "X-Signature: 00"), 401, "a forged event")
	wantStatus(t, deliver(strings.Repeat("x", mostOfAnEvent+1)), 413, "a large event")
	if handled != 3 {
		t.Errorf("handled %d times", handled)
	}
}

func TestGraphQLCosts(t *testing.T) {
	for query, want := range map[string]int64{
		"": 1, "{ me }": 1, "query Q { me { name mail } }": 3,
		"{ users(first: 50) { id posts(last: 10) { id } } }":   601,
		`{ a: users(filter: {first: 9, name: ") {"}) { id } }`: 11, "{ users(first: 50) { id } }": 51,
		"{ users(first: 50) @include(if: true) { id } }": 51, "{ # )\n users(first: 50) { id } }": 51,
		"{ # x\r users(first: 50) { id } }": 51, "query Q($first: Int) { me { id } }": 2,
		"{ users(order: first) { id } }": 2, "{ users(first: 2, last: 3) { id } }": 4,
	} {
		if got, err := costOf(query); got != want || err != nil {
			t.Errorf("%s: %d, %v, want %d", query, got, err, want)
		}
	}
	for _, query := range []string{
		"{ users(first: 50) { posts(first: 50) { id } } }", "query Q($n: Int) { users(first: $n) { id } }",
		"{ ...f } fragment f on T { id }", "{ ... on T { id } }", "{ users(first: -1) { id } }",
		"{ users(name: \"\"\"\n\"\"\" first: 900) { id } }", "{ users(first: 99999999999999999999) { id } }",
		"{ me {" + strings.Repeat("a ", 1001) + "} }", strings.Repeat("{ a(first: 900) ", 40),
	} {
		if cost, err := costOf(query); err == nil {
			t.Errorf("%s: %d", query, cost)
		}
	}
}

func TestGraphQLPoints(t *testing.T) {
	gate, _ := newGate(t)
	app := asUser(GraphQL(gate, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	const costly = `{"query":"{ users(first: 900) { id } }"}` // 901
	const isJSON = "Content-Type: application/json; charset=utf-8"
	for range 11 {
		wantStatus(t, post(t, app, "/graphql", costly, "X-User: ann", isJSON), 200, "within 10,000")
	}
	wantStatus(t, post(t, app, "/graphql", costly, "X-User: ann", isJSON), 429, "beyond")
	wantStatus(t, post(t, app, "/graphql", `{"query":"{ me }"}`, "X-User: ann", isJSON), 200, "a cheap one still fits")
	wantStatus(t, post(t, app, "/graphql", `{"query":"{ ...f }"}`, "X-User: bob", isJSON), 400, "a fragment")
	wantStatus(t, post(t, app, "/graphql", `[`+costly+`]`, "X-User: bob", isJSON), 400, "a batch")
	// The rule read a cheap query, and the server another one.
	const cheap, dear = `{"query":"{ me }"}`, "?query=%7Busers%28first%3A900%29%7Bid%7D%7D"
	wantStatus(t, post(t, app, "/graphql"+dear, cheap, "X-User: bob", isJSON), 400, "a query in the URL")
	const isForm = "Content-Type: application/x-www-form-urlencoded"
	wantStatus(t, post(t, app, "/graphql", cheap, "X-User: bob", isForm), 400, "a form that is JSON, too")
	wantStatus(t, post(t, app, "/graphql", cheap, "X-User: bob"), 400, "a body without a type")
}

// scripted is a connection whose client sends n messages.
type scripted struct {
	n       int
	refused int
	waiting chan struct{} // nil: the client closes after its messages
}

func (c *scripted) Read(context.Context) ([]byte, error) {
	if c.n--; c.n < 0 {
		if c.waiting != nil {
			<-c.waiting
		}
		return nil, io.EOF
	}
	return []byte("hello"), nil
}

func (c *scripted) Refuse(code int, _ string) { c.refused = code }

func TestMessagesOfAChatAreLimited(t *testing.T) {
	gate, _ := newGate(t)
	received := map[string]int{}
	var conn *scripted
	app := asUser(Chat(gate, func(http.ResponseWriter, *http.Request) (Conn, error) { return conn, nil },
		func(user string, _ []byte) { received[user]++ }))

	conn = &scripted{n: 4}
	wantStatus(t, post(t, app, "/chat", "", "X-User: ann"), 200, "four messages")
	conn = &scripted{n: 9}
	post(t, app, "/chat", "", "X-User: ann")
	if received["ann"] != 5 || conn.refused != tooMuch {
		t.Errorf("%d messages arrived, the second connection was closed with %d", received["ann"], conn.refused)
	}
	conn = &scripted{}
	for range 8 {
		wantStatus(t, post(t, app, "/chat", "", "X-User: ann"), 200, "up to ten connections")
	}
	wantStatus(t, post(t, app, "/chat", "", "X-User: ann"), 429, "the eleventh")
}

func TestAUserHasThreeChatsAtATime(t *testing.T) {
	gate, _ := newGate(t)
	waiting, open := make(chan struct{}), make(chan struct{})
	app := asUser(Chat(gate, func(http.ResponseWriter, *http.Request) (Conn, error) {
		open <- struct{}{}
		return &scripted{waiting: waiting}, nil
	}, func(string, []byte) {}))
	ended := make(chan int)
	for range 3 {
		go func() { ended <- post(t, app, "/chat", "", "X-User: ann").Code }()
		<-open
	}
	wantStatus(t, post(t, app, "/chat", "", "X-User: ann"), 429, "the fourth")
	go func() { ended <- post(t, app, "/chat", "", "X-User: bob").Code }()
	<-open // somebody else has permits of their own
	close(waiting)
	for range 4 {
		if status := <-ended; status != 200 {
			t.Errorf("%d", status)
		}
	}
}

func TestUpgradesThatFailAreAnsweredByTheLibrary(t *testing.T) {
	gate, _ := newGate(t)
	app := asUser(Chat(gate, func(w http.ResponseWriter, _ *http.Request) (Conn, error) {
		w.WriteHeader(http.StatusUpgradeRequired)
		return nil, errors.New("no websocket")
	}, func(string, []byte) {}))
	wantStatus(t, post(t, app, "/chat", "", "X-User: ann"), http.StatusUpgradeRequired, "no upgrade")
}

// TestTokensAreChargedAsUsed: on all levels, and as many answers run as the learnt estimate lets fit, not as
// the most that an answer may cost.
func TestTokensAreChargedAsUsed(t *testing.T) {
	gate, m := newGate(t)
	used := int64(1000)
	mux, plans := http.NewServeMux(), map[string]TokenPlan{"acme": {100_000, 150_000, 60_000}}
	mux.Handle("POST /models/{model}/answers", Model(gate, plans,
		func(*http.Request) iter.Seq2[string, int64] {
			return func(yield func(string, int64) bool) { _ = yield("Hello", used/2) && yield(", Ann.", used/2) }
		}))
	ask := func(key, model string) *httptest.ResponseRecorder {
		ctx := keyfuncs.WithValue(keyfuncs.WithValue(t.Context(), "key", key), "org", strings.Split(key, "-")[0])
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/models/"+model+"/answers", nil))
		return w
	}
	answers := func(key, model string) (n int) {
		for ; ; n++ {
			switch w := ask(key, model); {
			case w.Code == 429:
				return n
			case w.Code != 200 || w.Body.String() != "Hello, Ann.":
				t.Fatalf("request %d: %d %s", n, w.Code, w.Body)
			}
		}
	}
	// Of the last 1,000 tokens of a key nothing could be used if each answer took 4,000 in advance.
	if n := answers("acme-1", "small"); n != 59 && n != 60 {
		t.Errorf("key 1 had %d answers of 1,000 tokens, want nearly 60", n)
	}
	if n := answers("acme-2", "small"); n < 39 || n > 41 {
		t.Errorf("key 2 had %d answers, want what its organisation has left", n)
	}
	wantStatus(t, ask("other-1", "small"), 403, "an organisation that nobody knows")
	m.SetTime(time.Date(2026, time.March, 1, 12, 2, 0, 0, time.UTC))
	before := ask("acme-1", "small").Header().Get("RateLimit")
	used = 3000 // more than estimated: it is charged
	wantStatus(t, ask("acme-1", "small"), 200, "a dear answer")
	used = 1000
	after := ask("acme-1", "small").Header().Get("RateLimit")
	if a, b := left(t, before, "tokens/key"), left(t, after, "tokens/key"); a-b < 3000 || a-b > 6000 {
		t.Errorf("of a key's minute %d and then %d are left: %s; %s", a, b, before, after)
	}
	if n := answers("acme-1", "small") + answers("acme-2", "small"); n < 41 || n > 46 {
		t.Errorf("%d answers, want what the month has left", n)
	}
	if w := ask("acme-2", "small"); !strings.Contains(w.Body.String(), `"quota"`) {
		t.Errorf("%d %s, want the month to bind", w.Code, w.Body)
	}
	m.SetTime(time.Date(2026, time.April, 1, 0, 0, 0, 0, time.UTC))
	wantStatus(t, ask("acme-2", "small"), 200, "a new month")
}

// left reads what is left of a policy in a RateLimit field.
func left(t *testing.T, field, policy string) (n int) {
	t.Helper()
	m := regexp.MustCompile(`"` + policy + `";r=(\d+)`).FindStringSubmatch(field)
	if m == nil {
		t.Fatalf("%q has no %s", field, policy)
	}
	n, _ = strconv.Atoi(m[1])
	return n
}

// TestAnEstimateLearns: it comes near to what answers cost, above most of them, and apart by key and model.
func TestAnEstimateLearns(t *testing.T) {
	var e estimates
	rng := rand.New(rand.NewPCG(28, 1))
	above := 0
	for i := range 1000 {
		cost := 300 + rng.Int64N(200)
		if e.of("ann|small") >= cost {
			above++
		}
		e.learn("ann|small", cost)
		if i > 50 && e.of("ann|small") > 700 {
			t.Fatalf("after %d answers of 300 to 500 tokens the estimate is %d", i, e.of("ann|small"))
		}
	}
	if above < 850 || e.of("ann|large") != mostOfAnAnswer {
		t.Errorf("%d of 1,000 answers cost no more than estimated; another model: %d", above, e.of("ann|large"))
	}
	for i := range 30_000 {
		e.learn(fmt.Sprint("made up ", i), 1)
	}
	if len(e.known) > 10_000 {
		t.Errorf("%d estimates are kept", len(e.known))
	}
}

func TestASaleIsForThoseWhoAreInvited(t *testing.T) {
	gate, _ := newGate(t)
	sale, secret := seckill.New(gate, "sale", seckill.Options{}), []byte("secret")
	if _, err := sale.Open(t.Context(), "tv", seckill.Sale{Stock: 2, PerBuyer: 1}); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /sales/{sku}/orders", InvitedOnly(sale, secret,
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })))
	app := asUser(mux)
	buy := func(user, invitation string) *httptest.ResponseRecorder {
		return post(t, app, "/sales/tv/orders?invitation="+invitation, "", "X-User: "+user)
	}
	wantStatus(t, buy("eve", ""), 403, "no invitation")
	wantStatus(t, buy("eve", Invitation(secret, "tv", "ann")), 403, "somebody else's")
	wantStatus(t, buy("eve", Invitation(secret, "phone", "eve")), 403, "for something else")
	wantStatus(t, buy("", Invitation(secret, "tv", "")), 403, "nobody")
	wantStatus(t, buy("ann", Invitation(secret, "tv", "ann")), 201, "ann")
	wantStatus(t, buy("ann", Invitation(secret, "tv", "ann")), 409, "ann again")
	wantStatus(t, buy("bob", Invitation(secret, "tv", "bob")), 201, "bob")
	wantStatus(t, buy("cid", Invitation(secret, "tv", "cid")), 409, "sold out")
}

func TestWhoPaysLaterPaysTheirOwnReservation(t *testing.T) {
	gate, _ := newGate(t)
	sale := seckill.New(gate, "sale", seckill.Options{})
	if _, err := sale.Open(t.Context(), "tv", seckill.Sale{Stock: 2, PerBuyer: 1}); err != nil {
		t.Fatal(err)
	}
	payments := 0
	app := asUser(PayLater(sale, func(*http.Request) { payments++ }))
	form := func(user, path, body string) *httptest.ResponseRecorder {
		return post(t, app, "/sales/tv/"+path, body, "X-User: "+user,
			"Content-Type: application/x-www-form-urlencoded")
	}
	field := func(page *httptest.ResponseRecorder, name string) string { // as the browser sends it
		t.Helper()
		m := regexp.MustCompile(`name="(` + name + `)" value="([^"]+)"`).FindStringSubmatch(page.Body.String())
		if m == nil {
			t.Fatalf("%d %s: no field %s", page.Code, page.Body, name)
		}
		return url.Values{m[1]: {html.UnescapeString(m[2])}}.Encode()
	}
	page := func() string {
		w := httptest.NewRecorder()
		app.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/sales/tv", nil))
		return field(w, "purchase")
	}
	purchase := page()
	held := field(form("ann", "orders", purchase), "reservation")
	for what, body := range map[string]string{"a second click": purchase, "a new page": page(), "no field": ""} {
		if got := field(form("ann", "orders", body), "reservation"); got != held {
			t.Errorf("%s: %s, want %s", what, got, held)
		}
	}
	wantStatus(t, form("eve", "payments", held), 409, "another's reservation")
	wantStatus(t, form("ann", "payments", "reservation=made-up"), 409, "none")
	wantStatus(t, form("ann", "payments", ""), 400, "no reservation")
	wantStatus(t, form("", "payments", held), 401, "nobody")
	for range 2 {
		wantStatus(t, form("ann", "payments", held), 200, "ann")
	}
	wantStatus(t, form("ann", "orders", page()), 409, "ann has bought")
	if s, err := sale.Status(t.Context(), "tv"); err != nil || s.Left != 1 || s.Sold != 1 {
		t.Errorf("%+v, %v: want one of two sold", s, err)
	}
	if payments != 2 {
		t.Errorf("%d payments, want one and its repetition", payments)
	}
}

// asMember is a login that believes X-User and X-Tenant.
func asMember(h http.Handler) http.Handler {
	return asUser(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(keyfuncs.WithValue(r.Context(), "tenant", r.Header.Get("X-Tenant"))))
	}))
}

// tenants is the recipe for acme, 100 a minute, and tiny, 5. A call sends n requests of users of a tenant to a
// host, and counts the answers.
func tenants(t *testing.T) (answers func(n int, host, of string, user func(i int) string) map[int]int) {
	gate, _ := newGate(t)
	app := asMember(Tenants(gate, map[string]int64{"acme": 100, "tiny": 5},
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	return func(n int, host, of string, user func(i int) string) map[int]int {
		found := map[int]int{}
		for i := range n {
			found[post(t, app, "/", "", "Host: "+host, "X-Tenant: "+of, "X-User: "+user(i)).Code]++
		}
		return found
	}
}

func ann(int) string    { return "ann" }
func each(i int) string { return fmt.Sprint("u", i) }

func TestTenantsHaveBudgetsOfTheirOwn(t *testing.T) {
	answers := tenants(t)
	if got := answers(20, "acme.example.com", "acme", ann); got[200] != 10 || got[429] != 10 {
		t.Errorf("one user of acme: %v", got)
	}
	if got := answers(20, "TINY.example.com", "tiny", ann); got[200] != 1 || got[429] != 19 {
		t.Errorf("a user of tiny with the same name: %v", got)
	}
	if got := answers(200, "acme.example.com", "acme", each); got[200] != 90 {
		t.Errorf("all of acme: %v", got)
	}
	if got := answers(20, "tiny.example.com", "tiny", each); got[200] != 4 {
		t.Errorf("all of tiny: %v", got)
	}
	if got := answers(1, "made-up.example.com", "made-up", ann); got[403] != 1 {
		t.Errorf("a tenant that does not exist: %v", got)
	}
	if got := answers(1, "acme.example.org", "acme", ann); got[400] != 1 {
		t.Errorf("no host of a tenant: %v", got)
	}
}

// TestUsersOfOneTenantCannotUseUpAnother: the Host alone said whose plan a request counted against, so 5
// requests of acme's users left nothing to tiny.
func TestUsersOfOneTenantCannotUseUpAnother(t *testing.T) {
	answers := tenants(t)
	for _, of := range []string{"acme", ""} { // "": a login that names no tenant
		if got := answers(20, "tiny.example.com", of, each); got[403] != 20 {
			t.Errorf("users of %q at the host of tiny: %v", of, got)
		}
	}
	if got := answers(5, "tiny.example.com", "tiny", each); got[200] != 5 {
		t.Errorf("users of tiny: %v", got)
	}
}

// TestAHostWithAPortIsThatOfItsTenant: it was 400.
func TestAHostWithAPortIsThatOfItsTenant(t *testing.T) {
	answers := tenants(t)
	for _, host := range []string{"acme.example.com:8443", "Acme.Example.com.", "acme.example.com.:443"} {
		if got := answers(3, host, "acme", ann); got[200] != 3 {
			t.Errorf("%s: %v", host, got)
		}
		if got := answers(1, host, "tiny", ann); got[403] != 1 {
			t.Errorf("%s, a user of tiny: %v", host, got)
		}
	}
	if got := answers(2, "acme.example.com", "acme", ann); got[200] != 1 || got[429] != 1 {
		t.Errorf("the tenth and the eleventh: %v, want one budget for all spellings", got)
	}
}
