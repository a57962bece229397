package docs_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// A rule with most of its fields: an order of several units, which a retry does not repeat.
func Example_rule() {
	gate := core.New(client(), core.WithDeadline(30*time.Second)) // a test machine may be busy
	sale := seckill.New(gate, "sale", seckill.Options{})
	if _, err := sale.Open(context.Background(), "tv-55", seckill.Sale{Stock: 7, PerBuyer: 5}); err != nil {
		log.Fatal(err)
	}
	login := func(next http.Handler) http.Handler { // your own login goes here
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(keyfuncs.WithValue(r.Context(), "uid", r.Header.Get("X-User"))))
		})
	}
	placeOrder := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, _ := ratelimit.Decision(r.Context(), "sale")
		fmt.Fprint(w, d.Attempt.Cost, " of ", d.Attempt.Resource, " for ", d.Attempt.Actor)
	})

	order := ratelimit.Rule{
		Guard: sale,                      // decides: here a flash sale
		Who:   keyfuncs.User("uid"),      // who acts: what your login stored
		What:  keyfuncs.Param("sku"),     // on what: the {sku} of the route
		Cost:  quantity,                  // how many units; 1 without it
		ID:    keyfuncs.IdempotencyKey(), // which operation: a retry is no second order
	}
	mux := http.NewServeMux()
	mux.Handle("POST /sales/{sku}/orders", login(ratelimit.HTTP(order)(placeOrder)))

	for _, q := range []struct{ user, key, quantity string }{
		{"ann", "1", "5"}, {"ann", "1", "5"}, {"bob", "1", "3"}, {"bob", "2", "2"}, {"eve", "1", "900"},
	} {
		r := httptest.NewRequest(http.MethodPost, "/sales/tv-55/orders?quantity="+q.quantity, nil)
		r.Header.Set("X-User", q.user)
		r.Header.Set("Idempotency-Key", strconv.Quote(q.key))
		r.Header.Set("Accept", "text/plain")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		first, _, _ := strings.Cut(w.Body.String(), "\n")
		fmt.Println(w.Code, first)
	}
	// Output:
	// 200 5 of tv-55 for ann
	// 200 Already Done
	// 409 Sold Out
	// 200 2 of tv-55 for bob
	// 400 Invalid Request
}

// tenant finds the tenant in the host name, such as acme in acme.example.com.
func tenant(r *keyfuncs.Request) (string, error) {
	host, err := hostName(r) // in lower case, and without a port
	if err != nil {
		return "", err
	}
	name, domain, _ := strings.Cut(host, ".")
	if domain != "example.com" {
		return "", fmt.Errorf("%w: no tenant in the host name", keyfuncs.ErrMissing)
	}
	return name, nil
}

var hostName = keyfuncs.Host()

// quantity finds how many units a buyer wants: 1 to 5, and 1 where they do not say.
func quantity(r *keyfuncs.Request) (int64, error) {
	text, err := wanted(r)
	if errors.Is(err, keyfuncs.ErrMissing) {
		return 1, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > 5 {
		return 0, errors.New("a quantity is 1 to 5") // the client gets 400
	}
	return n, nil
}

var wanted = keyfuncs.Query("quantity")

// A key function of the application: requests without a tenant get 400.
func Example_keyFunction() {
	rule := ratelimit.Rule{
		Guard: limit.NewSlidingWindow(core.NewMemory(), "tenants", limit.PerMinute(1)),
		Who:   tenant,
	}
	app := ratelimit.HTTP(rule)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, host := range []string{"acme.example.com", "ACME.example.com", "other.example.com", "example.com"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		w := httptest.NewRecorder()
		app.ServeHTTP(w, r)
		fmt.Println(host, w.Code)
	}
	// Output:
	// acme.example.com 200
	// ACME.example.com 429
	// other.example.com 200
	// example.com 400
}
