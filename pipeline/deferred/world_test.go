package deferred_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
	"github.com/gatehouse-go/gatehouse/pipeline/deferred"
)

// gate is a guard that refuses for a moment, until the test opens it.
type gate struct {
	open    atomic.Bool
	refused atomic.Int64
	wait    time.Duration
}

func (g *gate) Name() string        { return "gate" }
func (g *gate) Traits() core.Traits { return core.Traits{KeepsOnFailure: true} }

func (g *gate) Check(_ context.Context, a core.Attempt) (core.Decision, error) {
	if g.open.Load() {
		return core.Decision{Guard: "gate", Attempt: a, Allowed: true, Reason: core.ReasonOK}, nil
	}
	g.refused.Add(1)
	return core.Decision{Guard: "gate", Attempt: a, Reason: core.ReasonLimited, RetryAfter: g.wait}, nil
}

func (*gate) Settle(context.Context, core.Decision, core.Ending) error { return nil }

// secret signs what is stored.
var secret = []byte("a secret of 32 bytes for tests..")

// world is an application whose rule defers what its gate refuses.
type world struct {
	*testing.T
	client   redis.UniversalClient
	gate     *gate
	queue    *delay.Queue
	requests *deferred.Requests
	app      http.Handler
	handler  atomic.Pointer[http.HandlerFunc] // what the route does
	// Middlewares around the application, around it for the worker only, and between the rule and the handler.
	// Nil: none.
	outside, behind, inside func(http.Handler) http.Handler

	mu  sync.Mutex
	ran []string // what the handler got, as "ann POST /exports?q=1 body"
}

// newWorld makes a world on the backend. change, if there is one, changes the options.
func newWorld(t *testing.T, b redistest.Backend, o delay.Options, change func(*deferred.Options)) *world {
	engine := guardtest.NewEngine(b)
	w := &world{T: t, client: b.Client, gate: &gate{wait: 20 * time.Millisecond},
		queue: delay.New(engine, "deferred", o)}
	options := deferred.Options{
		Who:     keyfuncs.User("uid"),
		Limit:   limit.NewSlidingWindow(engine, "stored", limit.PerHour(10)),
		Secrets: [][]byte{secret},
	}
	if change != nil {
		change(&options)
	}
	w.requests = deferred.New(w.queue, options)
	w.answer(func(to http.ResponseWriter, _ *http.Request) {
		to.Header().Set("Location", "/files/7")
		to.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(to, "made")
	})
	mux := http.NewServeMux()
	rule := pipeline.Rule{Guard: w.gate, Who: keyfuncs.Const("all"), Defer: w.requests}
	mux.Handle("POST /exports", nethttpmw.HTTP(rule)(through(&w.inside, http.HandlerFunc(w.serve))))
	mux.Handle("/deferred/{id}", w.requests)
	w.app = through(&w.outside, login(mux))
	return w
}

// through is a handler behind a middleware that a test may set later.
func through(middleware *func(http.Handler) http.Handler, h http.Handler) http.Handler {
	return http.HandlerFunc(func(to http.ResponseWriter, r *http.Request) {
		if *middleware == nil {
			h.ServeHTTP(to, r)
			return
		}
		(*middleware)(h).ServeHTTP(to, r)
	})
}

// answer says what the handler answers.
func (w *world) answer(f http.HandlerFunc) { w.handler.Store(&f) }

func (w *world) serve(to http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.Error(err)
	}
	who, err := keyfuncs.User("uid")(&keyfuncs.Request{Request: r})
	if err != nil {
		w.Error(err)
	}
	w.mu.Lock()
	w.ran = append(w.ran, strings.Join([]string{who, r.Method, r.URL.RequestURI(), string(body)}, " "))
	w.mu.Unlock()
	(*w.handler.Load())(to, r)
}

// runs returns what the handler got so far.
func (w *world) runs() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.ran...)
}

// login stands for the login of an application: the password of a user is in Authorization, and what runs
// later is its principal's.
func login(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, ok := deferred.Principal(r.Context())
		if !ok {
			user = strings.TrimPrefix(r.Header.Get("Authorization"), "secret-")
		}
		next.ServeHTTP(w, r.WithContext(keyfuncs.WithValue(r.Context(), "uid", user)))
	})
}

// post sends a request of a user, with headers "Name: value".
func (w *world) post(user, body string, headers ...string) *httptest.ResponseRecorder {
	return w.send(user, http.MethodPost, "/exports?q=1", body, headers...)
}

func (w *world) send(user, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	to := httptest.NewRecorder()
	w.app.ServeHTTP(to, newRequest(user, method, path, body, headers...))
	return to
}

func newRequest(user, method, path, body string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if user != "" {
		r.Header.Set("Authorization", "secret-"+user)
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
	}
	return r
}

// defers posts a request of ann, which has to be deferred, and returns its Location.
func (w *world) defers(body string, headers ...string) string {
	w.Helper()
	to := w.post("ann", body, headers...)
	location := to.Header().Get("Location")
	if to.Code != http.StatusAccepted || !strings.HasPrefix(location, "/deferred/") ||
		to.Header().Get("Retry-After") != "1" {
		w.Fatalf("%d %v %s: want 202", to.Code, to.Header(), to.Body)
	}
	return location
}

// page asks the page.
func (w *world) page(user, location string) *httptest.ResponseRecorder {
	return w.send(user, http.MethodGet, location, "")
}

// wantState waits until the page of ann's request tells a state.
func (w *world) wantState(location string, want deferred.State) *httptest.ResponseRecorder {
	w.Helper()
	var to *httptest.ResponseRecorder
	redistest.Eventually(w.T, time.Minute, func() bool {
		to = w.page("ann", location)
		return to.Code != http.StatusAccepted
	}, "the request has ended")
	if got := to.Header().Get(deferred.StateHeader); got != string(want) {
		w.Errorf("the request is %q, want %q: %d %v %s", got, want, to.Code, to.Header(), to.Body)
	}
	return to
}

// work runs a worker until the test ends.
func (w *world) work() {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	app := through(&w.behind, w.app)
	go func() { ended <- w.requests.Work(ctx, app, delay.WorkOptions{Concurrency: 4}) }()
	w.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			w.Errorf("Work: %v", err)
		}
	})
}

// wantPending wants so many requests to be stored.
func (w *world) wantPending(want int64) {
	w.Helper()
	if c, err := w.queue.Counts(w.Context()); err != nil || c.Pending != want {
		w.Errorf("%+v, %v: want %d pending", c, err, want)
	}
}
