package core

import (
	"context"
	"slices"
	"time"
)

// Exports for the tests of this package. They are in package core_test because they use guards.

var (
	CheckTag = checkTag
	ErrSlots = errSlots
)

const (
	BreakerFailures = breakerFailures
	BreakerPause    = breakerPause
	BreakerForget   = breakerForget
)

type OnceCmd = onceCmd

// LogAgain makes an observer of LogErrors log the next error, no matter when it logged the last one.
func LogAgain(o Observer) { o.(*logErrors).last = time.Time{} }

// SetObeysDeadline sets whether the engine assumes that its client ends a call when the context ends.
func (e *Engine) SetObeysDeadline(obeys bool) { e.obeysDeadline = obeys }

// ProbeIsDue reports whether a lost connection to the engine's one server would start a probe.
func (e *Engine) ProbeIsDue() bool {
	b := e.breakers.of(context.Background(), "")
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.probing == nil && time.Since(b.looked) > e.breakers.options.Pause
}

// SetSharedWait sets how long calls wait at most for those under way.
func (e *Engine) SetSharedWait(d time.Duration) {
	e.joins.mu.Lock()
	e.joins.longest, e.joins.spare = d, nil
	e.joins.mu.Unlock()
	e.shared.mu.Lock()
	defer e.shared.mu.Unlock()
	e.shared.longest = d
	for _, l := range e.shared.lines {
		l.mu.Lock()
		l.longest = d
		l.mu.Unlock()
	}
}

// WaitingCalls returns how many calls wait for those under way.
func (e *Engine) WaitingCalls() (n int) {
	e.joins.mu.Lock()
	for _, l := range e.joins.lines {
		n += len(l.calls)
	}
	e.joins.mu.Unlock()
	e.shared.mu.RLock()
	defer e.shared.mu.RUnlock()
	for _, l := range e.shared.lines {
		l.mu.Lock()
		n += len(l.calls)
		l.mu.Unlock()
	}
	return n
}

// Flights returns how many pipelines, and calls by themselves, are under way.
func (e *Engine) Flights() (n int) {
	e.shared.mu.RLock()
	defer e.shared.mu.RUnlock()
	for _, l := range e.shared.lines {
		l.mu.Lock()
		n += l.flights
		l.mu.Unlock()
	}
	return n
}

// Joins returns how many groups have calls under way.
func (e *Engine) Joins() int {
	e.joins.mu.Lock()
	defer e.joins.mu.Unlock()
	return len(e.joins.lines)
}

// Answers is how many kinds of answers are known.
func Answers() int { return len(answers) }

// AnswerOf returns which of the known answers an error is, or -1.
func AnswerOf(err error) int { return slices.Index(answers, verdictOn(err)) }
