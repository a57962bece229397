package operator_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/ops/operator"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// The operator's pages behind the application's login. Support may look; only administrators may change
// something.
func Example() {
	gate := core.NewMemory()
	perIP := pipeline.Rule{Guard: limit.NewSlidingWindow(gate, "site", limit.PerMinute(100)),
		Who: keyfuncs.IP()}

	ops := operator.New(operator.Options{
		Rules: []pipeline.Rule{perIP},
		Authorize: func(r *keyfuncs.Request, a operator.Action) (string, error) {
			user, role := r.Header.Get("X-User"), r.Header.Get("X-Role") // what the login in front has stored
			if role != "administrator" && (role != "support" || a.Changes) {
				return "", errors.New("not for " + user)
			}
			return user, nil
		},
	})
	mux := http.NewServeMux()
	mux.Handle("/ops/", ops)

	for _, ask := range []string{"GET /ops/site/peek?actor=203.0.113.7",
		"POST /ops/site/reset?actor=203.0.113.7"} {
		var method, path string
		_, _ = fmt.Sscan(ask, &method, &path)
		r := httptest.NewRequest(method, path, nil)
		r.Header.Set("X-User", "sam")
		r.Header.Set("X-Role", "support")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 200 {"allowed":true,"reason":"ok","limit":100,"remaining":100,"window":"1m0s","retry_after":"0s"}
	// 403 {"title":"Forbidden","status":403,"detail":"You are not allowed to do this."}
}

// What operators send, and what the audit hears: each change is recorded before it is made and again
// afterwards.
func ExampleNew() {
	server, err := miniredis.Run() // an application has a Redis of its own
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	gate := core.New(rdb, core.WithDeadline(time.Minute))
	sale := seckill.New(gate, "sale", seckill.Options{})
	if _, err := sale.Open(context.Background(), "tv", seckill.Sale{Stock: 100}); err != nil {
		panic(err)
	}

	ops := operator.New(operator.Options{
		Guards:    []core.Guard{sale},
		Shown:     []operator.Action{{Guard: "sale", Name: "status", Fields: map[string]string{"item": "tv"}}},
		Authorize: func(*keyfuncs.Request, operator.Action) (string, error) { return "sam", nil }, // or an error
		Audit: func(_ context.Context, e operator.Event) error {
			fmt.Println("audit:", e.Operator, e.Action.Name, e.Action.Fields, e.Done, e.Err)
			return nil
		},
	})
	send := func(method, path, body string) {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		if method == http.MethodPost {
			r.Header.Set("Content-Type", "application/json")
		}
		w := httptest.NewRecorder()
		ops.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Body)
	}
	send(http.MethodGet, "/", "")
	send(http.MethodPost, "/sale/close", `{"item": "tv"}`)
	send(http.MethodPost, "/sale/close", `{"item": "radio"}`)
	send(http.MethodGet, "/sale/close?item=tv", "")
	// Output:
	// 200 {"guards":[{"name":"sale","kind":"sale","actions":["status","verify","repair","restock","sweep","close"]}]}
	// audit: sam close map[item:tv] false <nil>
	// audit: sam close map[item:tv] true <nil>
	// 200 {"done":true}
	// audit: sam close map[item:radio] false <nil>
	// audit: sam close map[item:radio] true core: close "sale": seckill: no such sale
	// 404 {"title":"Not Found","status":404,"detail":"core: close \"sale\": seckill: no such sale"}
	// 405 {"title":"Method Not Allowed","status":405,"detail":"This action changes something. Use POST."}
}
