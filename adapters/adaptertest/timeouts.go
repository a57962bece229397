package adaptertest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// An Around is a middleware of a framework or of net/http, around an application with rules.
type Around struct {
	// Name is that of the subtests.
	Name string
	// Build makes the application with the middleware around the rules. The limit is for a middleware that has a
	// time limit.
	Build func(limit time.Duration, app App) http.Handler
	// Ends says that the middleware ends the context of a request after the limit, Answers that it answers with
	// 503 then, and Recovers that it answers panics with 500.
	Ends, Answers, Recovers bool
	// Without is [Framework.Without].
	Without map[string]string
}

// lateness is how long the middlewares wait for a handler that is too late.
const lateness = 50 * time.Millisecond

// behind is a handler behind a middleware. A late one goes on when the middleware does not wait any more.
type behind struct {
	deed
	late bool
}

var behinds = []behind{
	{deed{"201 in time", reply(201, "sold"), 201, false}, false},
	{deed{"201 too late", reply(201, "sold"), 201, false}, true},
	{deed{"nothing, too late", nothing, 0, false}, true},
	{deed{"a panic", func(Context) { panic("lost") }, 0, true}, false},
	{deed{"200, then a panic", streamed(func() { panic("lost") }), 200, true}, false},
}

// want returns the status that the first client gets, 0 for none, and whether what it took is kept.
func (b behind) want(around Around) (hears int, kept bool) {
	switch {
	case b.late && (around.Answers || b.status == 0):
		return http.StatusServiceUnavailable, false
	case b.panics && b.status == 0 && around.Recovers:
		return http.StatusInternalServerError, false
	}
	return b.status, true
}

// RunBehind tests an adapter behind middlewares, over TCP: three clients buy the only unit, and vote. A
// client that got a yes has what it asked for, and no other client has it.
func RunBehind(t *testing.T, arounds ...Around) {
	for _, around := range arounds {
		if around.Answers {
			t.Run(around.Name+", while it is confirmed", func(t *testing.T) {
				newScene(t, Framework{}, redistest.Mini).lostWhileConfirmed(around)
			})
		}
		for _, b := range behinds {
			if b.late && !around.Ends || b.panics && !around.Recovers {
				continue
			}
			for _, guard := range []string{"a sale", "a vote"} {
				name := around.Name + ", " + b.name + ", " + guard
				if (Framework{Without: around.Without}).leavesOut(t, name) {
					continue
				}
				t.Run(name, func(t *testing.T) {
					s := newScene(t, Framework{}, redistest.Mini)
					s.answeredBehind(around, b, guard == "a sale")
				})
			}
		}
	}
}

// confirmed is a sale that says when it has confirmed a reservation.
type confirmed struct {
	*seckill.Guard
	then func()
}

func (g confirmed) Settle(ctx context.Context, d core.Decision, end core.Ending) error {
	err := g.Guard.Settle(ctx, d, end)
	if end.Commits() {
		g.then()
	}
	return err
}

// lostWhileConfirmed lets the time of a request end when its reservation has just been confirmed: the
// middleware answers 503, and the unit goes back. A client that named its operation keeps it, and gets the
// answer when it asks again.
func (s *scene) lostWhileConfirmed(around Around) {
	for _, named := range []bool{false, true} {
		item := fmt.Sprint("named-", named)
		sale := s.sale(item, seckill.Sale{Stock: 1})
		var whenConfirmed func()
		rule := claim(confirmed{sale, func() { whenConfirmed() }})
		app := around.Build(time.Hour, onThings(func(c Context) { reply(201, "sold")(c) }, rule))
		post := func(inTime bool) int {
			r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, thing, nil)
			r.Header.Set(UserHeader, "ann")
			if named {
				r.Header.Set("Idempotency-Key", `"order-1"`)
			}
			ctx, cancel := context.WithCancel(s.Context())
			defer cancel()
			answered := make(chan struct{})
			whenConfirmed = func() {
				if !inTime {
					cancel()
					<-answered // of a handler and a time that end together either may be the answer
				}
			}
			w := httptest.NewRecorder()
			app.ServeHTTP(w, r.WithContext(ctx))
			close(answered)
			return w.Code
		}
		if status := post(false); status != http.StatusServiceUnavailable {
			s.Errorf("named %t: the time ended, and the client got %d", named, status)
		}
		want := seckill.Status{Stock: 1, Left: 1}
		if named {
			want = seckill.Status{Stock: 1, Sold: 1}
		}
		redistest.Eventually(s, time.Minute, func() bool {
			status, err := sale.Status(s.Context(), "t1")
			want.Epoch = status.Epoch
			return err == nil && status == want
		}, fmt.Sprintf("named %t: the sale is as the client heard", named))
		if named {
			if status := post(true); status/100 != 2 {
				s.Errorf("the client asked again for what it has bought, and got %d", status)
			}
		}
	}
}

func (s *scene) answeredBehind(around Around, b behind, sells bool) {
	var guard core.Guard
	ballots := votes.New(s.gate, "vote", votes.Options{})
	var sale *seckill.Guard
	if guard = ballots; sells {
		sale = s.sale("sale", seckill.Sale{Stock: 1})
		guard = sale
	}
	limit := time.Hour
	if b.late {
		limit = lateness
	}
	hears, kept := b.want(around)
	yes := int64(0)
	for i := range 3 {
		answered := make(chan struct{})
		srv := s.wire(around.Build(limit, onThings(func(c Context) {
			if b.late {
				<-c.Request().Context().Done()
			}
			if b.late && around.Answers {
				<-answered
			}
			b.do(c)
		}, ruleOf(guard))), false, nil, nil)
		c := srv.dial()
		c.post(fmt.Sprint("client ", i))
		want := hears
		if sells && kept && i > 0 {
			want = http.StatusConflict
		} else if kept {
			yes++
		}
		if status, body := c.answer(); status != want {
			s.Errorf("client %d got %d %s, want %d", i, status, body, want)
		}
		close(answered)
		redistest.Eventually(s, time.Minute, func() bool {
			if !sells {
				tally, err := ballots.Tally(s.Context(), "t1")
				return err == nil && tally["red"] == yes
			}
			status, err := sale.Status(s.Context(), "t1")
			return err == nil && status.Held == 0 && status.Sold == yes && status.Left == 1-yes
		}, fmt.Sprint("what ", yes, " clients were promised, and nothing else, is taken"))
		srv.Close()
	}
}

// ruleOf is a rule of the guard that no client's operation ID makes a replay.
func ruleOf(g core.Guard) pipeline.Rule {
	rule := vote(g)
	rule.ID = nil
	return rule
}
