package nethttpmw_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// newRedis starts a Redis inside the process. An application has its own.
func newRedis() (rdb *redis.Client, stop func()) {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	rdb = redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	return rdb, func() { rdb.Close(); server.Close() }
}

// A limit by address around everything, and a sale that cannot oversell. In the sale, a unit is held for the
// buyer while the handler runs: it is sold when the handler answers with success, and goes back when it
// fails.
func ExampleHTTP() {
	rdb, stop := newRedis()
	defer stop()
	gate := core.New(rdb, core.WithDeadline(time.Minute))
	sale := seckill.New(gate, "sale", seckill.Options{})
	if _, err := sale.Open(context.Background(), "ticket", seckill.Sale{Stock: 1}); err != nil {
		panic(err)
	}
	perIP := ratelimit.Rule{Guard: limit.NewSlidingWindow(gate, "site", limit.PerMinute(2)), Who: keyfuncs.IP()}
	buy := ratelimit.Rule{Guard: sale, Who: keyfuncs.Query("user"), What: keyfuncs.Param("sku")}

	order := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, _ := ratelimit.Decision(r.Context(), "sale")
		fmt.Fprintf(w, "one %s for %s\n", d.Attempt.Resource, d.Attempt.Actor)
	})
	mux := http.NewServeMux()
	mux.Handle("POST /sales/{sku}/orders", ratelimit.HTTP(buy)(order))
	app := ratelimit.HTTP(perIP)(mux)

	for _, user := range []string{"ann", "bob", "cid"} {
		w := httptest.NewRecorder()
		app.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/sales/ticket/orders?user="+user, nil))
		fmt.Print(w.Code, " ", w.Body)
	}
	// Output:
	// 200 one ticket for ann
	// 409 {"type":"https://github.com/gatehouse-go/gatehouse/blob/main/docs/guides/answers.md#sold_out","title":"Sold Out","status":409,"detail":"Sold out.","reason":"sold_out"}
	// 429 {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"detail":"Too many requests. Try again later.","reason":"limited","violated-policies":["site"]}
}

// A purchase that is paid later: the handler takes the reservation from the middleware, and the code that
// receives the payment confirms it by name.
func ExampleTake() {
	rdb, stop := newRedis()
	defer stop()
	ctx := context.Background()
	gate := core.New(rdb, core.WithDeadline(time.Minute))
	sale := seckill.New(gate, "sale", seckill.Options{})
	if _, err := sale.Open(ctx, "ticket", seckill.Sale{Stock: 10, Hold: 15 * time.Minute}); err != nil {
		panic(err)
	}
	buy := ratelimit.Rule{Guard: sale, Who: keyfuncs.Query("user"), What: keyfuncs.Param("sku")}

	var order core.Attempt // an application keeps its Resource, ID and Actor
	mux := http.NewServeMux()
	mux.Handle("POST /sales/{sku}/orders", ratelimit.HTTP(buy)(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			d, _ := ratelimit.Take(r.Context(), "sale")
			order = d.Attempt
			w.WriteHeader(http.StatusAccepted)
		})))
	mux.ServeHTTP(httptest.NewRecorder(),
		httptest.NewRequest(http.MethodPost, "/sales/ticket/orders?user=ann", nil))
	status, err := sale.Status(ctx, "ticket")
	fmt.Println(status.Left, status.Held, status.Sold, err)

	paid, err := sale.Confirm(ctx, order)
	fmt.Println(paid.Allowed, err)
	status, err = sale.Status(ctx, "ticket")
	fmt.Println(status.Left, status.Held, status.Sold, err)
	// Output:
	// 9 1 0 <nil>
	// true <nil>
	// 9 0 1 <nil>
}

// Only failed logins count: a rule says which requests failed, and those give back what they took.
func ExampleRule_failedLogins() {
	rdb, stop := newRedis()
	defer stop()
	gate := core.New(rdb, core.WithDeadline(time.Minute))
	guesses := ratelimit.Rule{
		Guard:   limit.NewSlidingWindow(gate, "guesses", limit.PerHour(2)),
		Who:     keyfuncs.Query("user"),
		Counted: []int{http.StatusUnauthorized},
	}
	login := ratelimit.HTTP(guesses)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("password") != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	for _, password := range []string{"secret", "1234", "secret", "qwerty", "hunter2"} {
		w := httptest.NewRecorder()
		login.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/login?user=ann&password="+password, nil))
		fmt.Println(password, w.Code)
	}
	// Output:
	// secret 200
	// 1234 401
	// secret 200
	// qwerty 401
	// hunter2 429
}

// A group of routes with bans and lists: clients that go on after refusals are shut out for longer and
// longer, the office is not counted, and an abusive network is not served at all. Lists and bans can be
// changed while the server runs.
func ExampleRule_bansAndLists() {
	rdb, stop := newRedis()
	defer stop()
	ctx := context.Background()
	gate := core.New(rdb, core.WithDeadline(time.Minute))
	nuisances := keyfuncs.NewList(keyfuncs.IP(), "198.51.100.0/24")
	bans := bans.New(gate, "bans",
		bans.Options{Refusals: 2, First: time.Minute, Longest: 24 * time.Hour, Decay: time.Hour})
	perIP := ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "api", limit.PerMinute(1)),
		Who:   keyfuncs.IP(),
		Deny:  nuisances,
		Allow: keyfuncs.NewList(keyfuncs.IP(), "192.0.2.0/24", "2001:db8:1:2::5"),
		Bans:  bans,
	}

	api := http.NewServeMux()
	api.HandleFunc("GET /api/things", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "things") })
	mux := http.NewServeMux()
	mux.Handle("/api/", ratelimit.HTTP(perIP)(api))
	get := func(peer string, times int) {
		fmt.Print(peer)
		for range times {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodGet, "/api/things", nil)
			r.RemoteAddr = peer + ":50000"
			mux.ServeHTTP(w, r)
			var problem struct{ Reason string }
			_ = json.Unmarshal(w.Body.Bytes(), &problem) // things are no JSON
			fmt.Print(strings.TrimSuffix(fmt.Sprintf(" %d %s", w.Code, problem.Reason), " "))
		}
		fmt.Println()
	}

	get("192.0.2.9", 3)
	get("198.51.100.7", 2)
	get("203.0.113.7", 6)
	fmt.Println(bans.Unban(ctx, core.Attempt{Actor: "203.0.113.7"}))
	get("203.0.113.7", 1)
	fmt.Println(nuisances.Add("203.0.113.7"))
	get("203.0.113.7", 1)
	// Output:
	// 192.0.2.9 200 200 200
	// 198.51.100.7 403 denied 403 denied
	// 203.0.113.7 200 429 limited 429 limited 429 limited 429 banned 429 banned
	// <nil>
	// 203.0.113.7 429 limited
	// <nil>
	// 203.0.113.7 403 denied
}
