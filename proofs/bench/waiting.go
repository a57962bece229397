package bench

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/waitingroom"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// roomOptions are those of a room for this many visitors, who stay for the whole run.
func roomOptions(capacity int) waitingroom.Options {
	return waitingroom.Options{Capacity: capacity, Pass: 24 * time.Hour, Idle: 24 * time.Hour,
		Secrets: [][]byte{make([]byte, 32)}}
}

// waitingRooms is the group of what the visitors of waiting rooms ask. A key is a visitor.
func waitingRooms(ctx context.Context, rdb *redis.Client) group {
	return group{part: "waiting", name: "A waiting room", redis: rdb, loads: allowedLoads, claims: true,
		subjects: func(int, time.Duration) []subject {
			room := func(name string, capacity int, options ...core.Option) *waitingroom.Guard {
				gate := core.New(rdb, append(options, core.WithDeadline(30*time.Second), core.WithPrefix(name))...)
				return waitingroom.New(gate, "room", roomOptions(capacity))
			}
			arrivals := func(name string, g *waitingroom.Guard, reason core.Reason) subject {
				return subject{name: name, allow: func(ctx context.Context, key string) (bool, error) {
					d, err := g.Check(ctx, core.Attempt{Actor: key})
					return d.Reason == reason, err
				}}
			}
			returns := func(name string, g *waitingroom.Guard, reason core.Reason) subject {
				const visitors = 1000
				tokens, asks := make([]string, visitors), atomic.Int64{}
				for i := range tokens {
					tokens[i] = must(g.Check(ctx, core.Attempt{Actor: fmt.Sprint(i)})).Token
				}
				return subject{name: name, allow: func(ctx context.Context, _ string) (bool, error) {
					i := asks.Add(1) % visitors
					d, err := g.Check(ctx, core.Attempt{Actor: fmt.Sprint(i), Token: tokens[i]})
					return d.Reason == reason, err
				}}
			}
			full := func(name string, options ...core.Option) *waitingroom.Guard {
				g := room(name, 1, options...)
				must(g.Check(ctx, core.Attempt{Actor: "inside"}))
				return g
			}
			return []subject{
				floorOn(ctx, rdb),
				arrivals("arrival, each by itself", full("alone", core.WithoutSharedCalls()), waitingroom.ReasonWaiting),
				arrivals("arrival, shared", full("shares"), waitingroom.ReasonWaiting),
				arrivals("arrival that enters at once", room("empty", 1_000_000), core.ReasonOK),
				returns("poll of one who waits", full("waits"), waitingroom.ReasonWaiting),
				returns("request with a pass", room("passes", 1_000_000), core.ReasonOK),
			}
		}}
}

// lineSite is the page that visitors of a waiting room see.
const lineSite = "the page of a waiting room"

// line returns the page for a visitor who waits and asks again, and the same page from a handler without a
// rule.
func line(ctx context.Context, rdb *redis.Client) (static, guarded http.Handler) {
	gate := core.New(rdb, core.WithDeadline(30*time.Second), core.WithPrefix("line"))
	room := waitingroom.New(gate, "room", roomOptions(1))
	must(room.Check(ctx, core.Attempt{Actor: "inside"}))
	app := nethttpmw.HTTP(pipeline.Rule{Guard: room, Who: keyfuncs.Visitor()})(http.NotFoundHandler())
	ask := func(cookie string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/", nil)
		r.Header.Set("Accept", "text/html")
		if cookie != "" {
			r.Header.Set("Cookie", cookie)
		}
		app.ServeHTTP(w, r)
		return w
	}
	ticket, _, _ := strings.Cut(ask("").Header().Get("Set-Cookie"), ";")
	page := ask(ticket)
	if page.Code != http.StatusOK || page.Header().Get("Set-Cookie") != "" {
		panic(fmt.Sprint(page.Code, page.Header()))
	}
	static = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for name, values := range page.Header() {
			w.Header()[name] = values
		}
		_, _ = w.Write(page.Body.Bytes())
	})
	return static, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Host = "localhost"
		r.Header.Set("Accept", "text/html")
		r.Header.Del("User-Agent")
		r.Header.Set("Cookie", ticket)
		app.ServeHTTP(w, r)
	})
}
