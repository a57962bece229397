// Command exports makes exports ten at a time, however many are asked for. A request that finds no room gets
// 202 and the address of a page in place of 429; a worker makes its export later. It runs on
// a Redis inside the process, or on that of REDIS_URL.
//
//	export DEFERRED_SECRET="$(openssl rand -hex 32)" # the same in all processes
//	go run ./examples/exports
//	curl -i -X POST -u ann:pw -H 'Idempotency-Key: "e1"' 'http://127.0.0.1:8080/exports?rows=1000'
//	curl -i -u ann:pw http://127.0.0.1:8080/deferred/...   # the Location of a 202
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/core/embedded"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline/deferred"
)

// atATime is how many exports run at a time, in all processes together.
const atATime = 10

// exports is the application.
type exports struct {
	http.Handler
	requests *deferred.Requests
}

// newExports makes an application whose exports are made by the function. The secrets seal what is stored.
func newExports(gate *core.Engine, perUser int64, secrets [][]byte, export http.HandlerFunc) *exports {
	requests := deferred.New(delay.New(gate, "deferred", delay.Options{}), deferred.Options{
		Who:     keyfuncs.User("uid"),
		Limit:   limit.NewSlidingWindow(gate, "stored", limit.PerHour(perUser)),
		Secrets: secrets,
	})
	room := ratelimit.Rule{
		// What is deferred waits for the end of a lease. So a short one is better here than the ten seconds
		// that are the default.
		Guard: semaphore.New(gate, "exports", semaphore.Options{Max: atATime, Lease: time.Second}),
		Who:   keyfuncs.User("uid"),
		Defer: requests,
	}
	mux := http.NewServeMux()
	mux.Handle("POST /exports", ratelimit.HTTP(room)(export))
	mux.Handle("GET /deferred/{id}", requests)
	return &exports{login(mux), requests}
}

// work makes what was deferred, until the context is over. With as many handlers as there is room for, few
// find none.
func (e *exports) work(ctx context.Context) error {
	return e.requests.Work(ctx, e, delay.WorkOptions{Concurrency: atATime})
}

// login stands for the login of an application: it believes every password. What runs later has no
// credentials; it has passed the login before, as its principal.
func login(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, ok := deferred.Principal(r.Context())
		if !ok {
			user, _, ok = r.BasicAuth()
		}
		if !ok || user == "" {
			w.Header().Set("WWW-Authenticate", `Basic realm="exports"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(keyfuncs.WithValue(r.Context(), "uid", user)))
	})
}

// export takes a second, and would make a file.
func export(w http.ResponseWriter, r *http.Request) {
	select {
	case <-time.After(time.Second):
	case <-r.Context().Done():
		return // the client is gone, or the permit is lost
	}
	w.Header().Set("Location", "/files/"+r.FormValue("rows"))
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintln(w, "exported", r.FormValue("rows"), "rows")
}

func main() {
	if err := run(); err != nil {
		log.Fatal("exports: ", err)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	rdb := embedded.Unless(os.Getenv("REDIS_URL")) // empty: a Redis inside this process
	defer func() { _ = rdb.Close() }()
	var secrets [][]byte
	if secret := os.Getenv("DEFERRED_SECRET"); secret != "" { // without one, set-up says what that means
		secrets = [][]byte{[]byte(secret)}
	}
	app := newExports(core.New(rdb), 1000, secrets, export)
	worked := make(chan error, 1)
	go func() { worked <- app.work(ctx) }()
	server := &http.Server{Addr: "127.0.0.1:8080", Handler: app, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() {
		last, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = server.Shutdown(last) // what still runs is cut
	})
	log.Print("http://", server.Addr)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return errors.Join(<-worked, core.Drain(context.Background()))
}
