package waitingroom

import (
	"context"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/warn"
)

// showing tells whether visitors come back with the tickets that they were given: cookies that are lost on
// the way, by a proxy, on plain HTTP or in a frame of another site, make each request a new visitor.
type showing struct {
	mu    sync.Mutex
	began time.Time // of this span of two polls
	due   int       // visitors who got a ticket in the last span, and had to ask again in this one
	given int       // in this span
	shown int       // tickets that came in this span
}

// ticketless is how many visitors of a span have to come back before their silence says something.
const ticketless = 50

// count counts an attempt, which may have had a ticket.
func (g *Guard) count(d core.Decision, ticket bool) {
	s := &g.showing
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ticket:
		s.shown++
	case d.Token != "" && d.RetryAfter > 0 && d.RetryAfter <= g.options.Poll:
		s.given++
	}
}

// lookForTickets warns, once, when fewer than a tenth of the visitors who had to ask again have shown a
// ticket.
func (g *Guard) lookForTickets() {
	s, now := &g.showing, g.Engine().Now()
	s.mu.Lock()
	if now.Sub(s.began) < 2*g.options.Poll {
		s.mu.Unlock()
		return
	}
	due, shown := s.due, s.shown
	if now.Sub(s.began) >= 4*g.options.Poll { // nobody has looked meanwhile
		due = 0
	}
	s.began, s.due, s.given, s.shown = now, s.given, 0, 0
	s.mu.Unlock()
	if due >= ticketless && shown < due/10 {
		warn.Ticketless.Tell(context.Background(), g.Logger(), g.Name(), "guard", g.Name(), "visitors", due,
			"tickets", shown)
	}
}
