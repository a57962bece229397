package deferred_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline/deferred"
)

// One report per minute and user; the next ones are made later. The page of the answers has what became of
// each.
func Example() {
	server, err := miniredis.Run() // an application has its own Redis
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	gate := core.New(rdb, core.WithDeadline(time.Minute))

	login := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			user, ok := deferred.Principal(r.Context()) // of a request that runs later
			if !ok {
				user, _, _ = r.BasicAuth() // of one from a client, whose password an application checks
			}
			next.ServeHTTP(w, r.WithContext(keyfuncs.WithValue(r.Context(), "uid", user)))
		})
	}
	report := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "a report") })

	mux := http.NewServeMux()
	requests := deferred.New(delay.New(gate, "deferred", delay.Options{}), deferred.Options{
		Who:     keyfuncs.User("uid"), // nobody else may read the answer
		Limit:   limit.NewSlidingWindow(gate, "stored", limit.PerHour(20)),
		Secrets: [][]byte{make([]byte, 32)}, // an application has random bytes
	})
	reports := nethttpmw.Rule{
		Guard: limit.NewSlidingWindow(gate, "reports", limit.PerMinute(1)),
		Who:   keyfuncs.User("uid"),
		Defer: requests, // 202 in place of 429
	}
	mux.Handle("POST /reports", nethttpmw.HTTP(reports)(report))
	mux.Handle("GET /deferred/{id}", requests)
	app := login(mux)
	ctx, stop := context.WithCancel(context.Background())
	worked := make(chan error, 1)
	go func() { worked <- requests.Work(ctx, app, delay.WorkOptions{Concurrency: 10}) }()

	send := func(method, path, user string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, nil)
		r.SetBasicAuth(user, "password")
		w := httptest.NewRecorder()
		app.ServeHTTP(w, r)
		return w
	}
	w := send("POST", "/reports", "ann")
	fmt.Println(w.Code, w.Body)
	w = send("POST", "/reports", "ann")
	location := w.Header().Get("Location")
	fmt.Println(w.Code, len(location))
	for _, user := range []string{"ann", "bob"} {
		w = send("GET", location, user)
		fmt.Println(user, w.Code, w.Header().Get(deferred.StateHeader))
	}
	stop()
	if err := <-worked; err != nil {
		fmt.Println(err)
	}
	// Output:
	// 200 a report
	// 202 42
	// ann 202 pending
	// bob 404
}
