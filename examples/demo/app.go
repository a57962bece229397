package main

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/lock"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

const (
	poll  = "final"
	item  = "ticket"
	stock = 100

	// exportTime is how long an export takes, and work on a report.
	exportTime = 3 * time.Second
)

var choices = []string{"red", "blue", "green"}

// object is a JSON object.
type object = map[string]any

// app is one poll, one sale, exports, reports and a greeting.
type app struct {
	*http.ServeMux
	votes   *votes.Guard
	sale    *seckill.Guard
	exports *semaphore.Guard

	sizes      sizes
	switchable bool // whether the page can take Redis away
}

// newApp makes the guards, the rules and the routes. It does not call Redis; open does.
func newApp(gate *core.Engine, perIP limit.Limit) *app {
	a := &app{
		ServeMux: http.NewServeMux(),
		votes:    votes.New(gate, "poll", votes.Options{Find: findPoll}),
		sale:     seckill.New(gate, "sale", seckill.Options{}),
		exports:  semaphore.New(gate, "exports", semaphore.Options{Max: 2}),
		sizes:    full,
	}

	// By the address that opened the connection, which no header can change. This guard is on one route
	// only, so nothing else counts against its limit.
	hello := ratelimit.HTTP(ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "hello", perIP),
		Who:   keyfuncs.IP(),
	})
	a.Handle("GET /hello", hello(http.HandlerFunc(a.hello)))
	// One vote per user and poll, whatever the choice.
	a.guarded("POST /polls/{poll}/votes", a.vote, ratelimit.Rule{
		Guard: a.votes,
		What:  keyfuncs.Param("poll"),
		Which: keyfuncs.Form("choice"),
	})
	// One unit per buyer. The operation ID is the reservation: a buyer who sends an order again, because
	// the answer got lost, gets the same answer again. The rule adds the user, so that two users may
	// choose the same key.
	a.guarded("POST /sales/{item}/orders", a.order, ratelimit.Rule{
		Guard: a.sale,
		What:  keyfuncs.Param("item"),
		ID:    keyfuncs.IdempotencyKey(),
		// The handler answers a replay as the first order. A handler that makes orders goes without: then the
		// rule answers replays, and the handler does not run.
		RunReplays: true,
	})
	// Two exports at a time, whoever asks for them.
	a.guarded("GET /export", a.export, ratelimit.Rule{Guard: a.exports})
	// One user at a time works on a report.
	a.guarded("POST /reports/{report}", a.report, ratelimit.Rule{
		Guard: lock.New(gate, "report", lock.Options{}),
		What:  keyfuncs.Param("report"),
	})
	a.HandleFunc("GET /polls/"+poll, a.tally)
	a.HandleFunc("GET /sales/"+item, a.status)
	a.HandleFunc("GET /{$}", a.page)
	a.HandleFunc("GET /page/{file}", pageFile)
	return a
}

// guarded adds a route for users that are logged in, behind a rule about them.
func (a *app) guarded(pattern string, handler http.HandlerFunc, rule ratelimit.Rule) {
	rule.Who = keyfuncs.User("uid")
	a.Handle(pattern, withUser(ratelimit.HTTP(rule)(handler)))
}

// open puts the tickets on sale, and reports whether it did: an existing sale stays as it is. A poll needs
// no opening.
func (a *app) open(ctx context.Context) (bool, error) {
	return a.sale.Open(ctx, item, seckill.Sale{Stock: stock, PerBuyer: 1})
}

func findPoll(_ context.Context, name string) (votes.Poll, error) {
	if name != poll {
		return votes.Poll{}, votes.ErrNoPoll
	}
	return votes.Poll{Choices: choices}, nil
}

// withUser stands for an application's login. FOR THE DEMO ONLY it believes any name that a client gives:
// clients that choose their names can vote as often as they like.
func withUser(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := cmp.Or(r.Header.Get("X-User"), r.FormValue("user"))
		if user == "" {
			http.Error(w, "Say who you are: use -H 'X-User: alice' or ?user=alice", http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r.WithContext(keyfuncs.WithValue(r.Context(), "uid", user)))
	})
}

func (a *app) hello(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, object{"message": "hello"})
}

// vote runs for a vote that counts. If it did something that can fail, a status of 400 and up would take
// the vote back.
func (a *app) vote(w http.ResponseWriter, r *http.Request) {
	d, _ := ratelimit.Decision(r.Context(), a.votes.Name())
	reply(w, http.StatusCreated,
		object{"poll": d.Attempt.Resource, "user": d.Attempt.Actor, "choice": d.Attempt.Item})
}

// order runs with a unit held for the buyer. Its 201 makes the rule confirm the reservation: held becomes
// sold. A shop that is paid later takes the decision from the rule instead: see ratelimit.Take.
func (a *app) order(w http.ResponseWriter, r *http.Request) {
	d, _ := ratelimit.Decision(r.Context(), a.sale.Name())
	if d.Replayed {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	reply(w, http.StatusCreated, object{"item": d.Attempt.Resource, "user": d.Attempt.Actor,
		"reservation": d.Attempt.ID, "state": seckill.StateSold})
}

func (a *app) export(w http.ResponseWriter, r *http.Request) {
	work(w, r, object{"export": "done"})
}

// report has a fence, which a database would compare with that of the last write: see
// examples/orders/accounts.
func (a *app) report(w http.ResponseWriter, r *http.Request) {
	fence, _ := lock.Fence(r.Context())
	work(w, r, object{"fence": fence})
}

// work takes a while. Its context ends when nobody waits for it any more, and when its permit or lock is
// lost.
func work(w http.ResponseWriter, r *http.Request, body any) {
	if pause(r.Context(), exportTime) == nil {
		reply(w, http.StatusOK, body)
	}
}

func (a *app) tally(w http.ResponseWriter, r *http.Request) {
	tally, err := a.votes.Tally(r.Context(), poll)
	look(w, object{"poll": poll, "tally": tally}, err)
}

func (a *app) status(w http.ResponseWriter, r *http.Request) {
	s, err := statusOf(r.Context(), a.sale, item)
	look(w, struct {
		Item string `json:"item"`
		seckill.Status
	}{item, s}, err)
}

// statusOf is how a sale stands, without its epoch: buyers have no use for that.
func statusOf(ctx context.Context, sale *seckill.Guard, item string) (seckill.Status, error) {
	s, err := sale.Status(ctx, item)
	s.Epoch = 0
	return s, err
}

// standing is how the poll, the sale and the exports stand.
type standing struct {
	Tally   map[string]int64 `json:"tally"`
	Sale    seckill.Status   `json:"sale"`
	Max     int64            `json:"-"`
	Running int64            `json:"running"` // exports
}

func (a *app) standing(ctx context.Context) (s standing, err error) {
	if s.Tally, err = a.votes.Tally(ctx, poll); err != nil {
		return s, err
	}
	if s.Sale, err = statusOf(ctx, a.sale, item); err != nil {
		return s, err
	}
	exports, err := a.exports.Peek(ctx, core.Attempt{})
	s.Max, s.Running = exports.Max, exports.Held
	return s, err
}

// look answers with how something stands, unless Redis did not say.
func look(w http.ResponseWriter, body any, err error) {
	if err != nil {
		unavailable(w)
		return
	}
	reply(w, http.StatusOK, body)
}

// unavailable answers when Redis could not be asked. The guards have logged the cause, which is not for
// clients.
func unavailable(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, "Redis is not available right now. Try again later.", http.StatusServiceUnavailable)
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // fails only when the client is gone
}
