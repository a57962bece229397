package conformance

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/redistest"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
)

// An Around is a middleware that frameworks or net/http have, around an application with rules.
type Around struct {
	Name string
	// Build makes the application with the middleware around the rules. The limit is for one that has a time
	// limit.
	Build func(limit time.Duration, app App) http.Handler
	// Ends says that it ends the context of a request after the limit, Answers that it answers with 503 then,
	// and Recovers that it answers panics with 500.
	Ends, Answers, Recovers bool
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

// KeepWhatIsAnswered lets three clients buy the only unit, and vote, behind the real middlewares of the table
// in docs/contracts.md, over TCP: whoever got a yes has it, and nobody else has.
func KeepWhatIsAnswered(t *testing.T, arounds ...Around) {
	for _, around := range arounds {
		for _, b := range behinds {
			if b.late && !around.Ends || b.panics && !around.Recovers {
				continue
			}
			for _, guard := range []string{"a sale", "a vote"} {
				t.Run(around.Name+", "+b.name+", "+guard, func(t *testing.T) {
					s := newScene(t, Framework{}, redistest.Mini)
					s.answeredBehind(around, b, guard == "a sale")
				})
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
		redistest.Eventually(s, 10*time.Second, func() bool {
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
func ruleOf(g core.Guard) nethttpmw.Rule {
	rule := vote(g)
	rule.ID = nil
	return rule
}
