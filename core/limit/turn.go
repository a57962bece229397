package limit

import (
	"context"
	"time"

	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/bounded"
	"github.com/gatehouse-go/gatehouse/lua"
)

// This file keeps the lines of several processes from passing a waiter by for ever: a large cost, for which
// enough units are never free at once while small ones take each that is. Whoever has waited for half a window
// and is refused at the head of a line takes the turn. The lines of other processes wait until it has asked
// again; they look for that an eighth of a window apart.

var turnScript = script.New("turn", lua.Source("limit/turn"), script.Idempotent)

// turns is what a process knows of turns.
type turns struct {
	name  string // of the process; empty: there are no others
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

// newTurns returns turns that make their memory when they are used.
func newTurns(name string) *turns {
	return &turns{name: name, known: bounded.New[string, time.Time](mostTurns)}
}

// due reports whether it is time to look, and notes that somebody does.
func (t *turns) due(tag string, window time.Duration, now time.Time) bool {
	p := t.known.Of(tag)
	p.Lock()
	defer p.Unlock()
	if at, ok := p.Get(tag); ok && now.Before(at) {
		return false
	}
	p.Add(tag, now.Add(max(window/8, turnLook)))
	return true
}

// turn returns for how long the line has to wait because another process has the turn. It takes the turn
// itself if its first waiter was passed by for long.
func (s *lines) turn(ctx context.Context, n *line, first *waiter, now time.Time) (wait time.Duration) {
	window, passed, ttl := s.limitsOf(first).least.Window, false, time.Duration(0)
	if passed = n.passed(first, window, now); passed {
		ttl = min(n.told, lookAfter) + min(window/turnSlack, yieldMost*10) + time.Millisecond
	}
	if s.turns == nil || !passed && !n.turn && !s.turns.due(n.tag, window, now) {
		return 0
	}
	c := script.Call{Runner: s.l.Engine().Runner, Script: turnScript, Limit: s.l.Engine().Deadline(),
		Keys: []string{s.l.Key(n.tag, "turn")}, Args: []any{s.turns.name, ttl.Milliseconds()}}
	script.Send(ctx, &c)
	held, _ := c.Reply.(int64) // after an error the line asks at once: it is only polite to wait
	n.turn = passed && c.Err == nil && held == 0
	return time.Duration(held) * time.Millisecond
}

// passed reports whether the first waiter has waited for half a window, and was refused.
func (n *line) passed(first *waiter, window time.Duration, now time.Time) bool {
	return n.head == first && micros(now)-first.came > window.Microseconds()/2
}
