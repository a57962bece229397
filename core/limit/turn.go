package limit

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/bounded"
	"github.com/gatehouse-go/gatehouse/lua"
)

// This file keeps the lines of several processes from passing a waiter by for ever: a large cost, for which
// enough units are never free at once while small ones take each that is. A waiter that has waited for half a
// window takes the turn when it is refused at the moment that it was told. The lines of other processes wait
// until it is served; they look for that an eighth of a window apart.

var turnScript = script.New("turn", lua.Source("limit/turn"), script.Idempotent).Shared()

// turns is what a process knows of turns.
type turns struct {
	name  string // of the process
	known *bounded.Map[string, time.Time]
}

const (
	// mostTurns is for how many actors a process knows when it has looked.
	mostTurns = 1 << 12
	// turnLook is the shortest time between two looks.
	turnLook = 25 * time.Millisecond
	// turnSlack is for how long a turn lasts after the moment at which its holder asks, in parts of the window.
	turnSlack = 32
)

func newTurns() *turns {
	return &turns{name: rand.Text()[:10], known: bounded.New[string, time.Time](mostTurns)}
}

// due reports whether it is time to look, and notes that somebody does.
func (t *turns) due(tag string, window time.Duration, now time.Time) bool {
	p := t.known.Of(tag)
	p.Lock()
	defer p.Unlock()
	if at, ok := p.Get(tag); ok && now.Before(at) {
		return false
	}
	p.Add(tag, now.Add(lookEach(window)))
	return true
}

// othersTurn returns for how long the line has to wait because another process has the turn.
func (s *lines) othersTurn(ctx context.Context, n *line, first *waiter) (wait time.Duration) {
	window := s.limitsOf(first).least.Window
	if s.turns == nil || n.turn || !s.turns().due(n.tag, window, time.Now()) || !s.askTurn(ctx, n, 0) {
		return 0
	}
	return lookEach(window)
}

// lookEach is the time between two looks.
func lookEach(window time.Duration) time.Duration { return max(window/8, turnLook) }

// takeTurn takes the turn for so long, or gives it up.
func (s *lines) takeTurn(ctx context.Context, n *line, lasts time.Duration) {
	if s.turns != nil && (lasts > 0 || n.turn) {
		n.turn = !s.askTurn(ctx, n, lasts) && lasts > 0
	}
}

// askTurn makes the call, and reports whether another process has the turn. After an error none has: it is
// only polite to wait, and the call for units shows the error.
func (s *lines) askTurn(ctx context.Context, n *line, lasts time.Duration) (others bool) {
	c := script.Call{Runner: s.l.Engine().Runner, Script: turnScript, Limit: s.l.Engine().Deadline(),
		Keys: []string{s.l.Key(n.tag, "turn")}, Args: []any{s.turns().name, lasts.Milliseconds()}}
	script.Send(ctx, &c)
	return c.Err == nil && c.Reply == int64(1)
}

// passedBy returns for how long the first waiter needs the turn, if it was refused before and has waited for
// half a window: until it asks again.
func (n *line) passedBy(first *waiter, d *core.Decision, now time.Time) time.Duration {
	if n.head != first || elapsed(now)-first.came < d.Window.Microseconds()/2 {
		return 0
	}
	return min(d.RetryAfter, lookAfter) + min(d.Window/turnSlack, 10*yieldMost) + time.Millisecond
}
