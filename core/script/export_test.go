package script

import (
	"context"
	"slices"
	"time"
)

// Exports for the tests of this package. They are in package script_test because they use guards.

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

// SetObeysDeadline sets whether the engine assumes that its client ends a call when the context ends.
func (r *Runner) SetObeysDeadline(obeys bool) { r.obeysDeadline = obeys }

// ProbeIsDue reports whether a lost connection to the engine's one server would start a probe.
func (r *Runner) ProbeIsDue() bool {
	b := r.breakers.of(context.Background(), "")
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.probing == nil && time.Since(b.looked) > r.breakers.pause
}

// SetSharedWait sets how long calls wait at most for those under way.
func (r *Runner) SetSharedWait(d time.Duration) {
	r.joins.mu.Lock()
	r.joins.longestWait, r.joins.spare = d, nil
	r.joins.mu.Unlock()
	r.pipelines.mu.Lock()
	defer r.pipelines.mu.Unlock()
	r.pipelines.longestWait = d
	for _, l := range r.pipelines.queues {
		l.mu.Lock()
		l.longestWait = d
		l.mu.Unlock()
	}
}

// WaitingCalls returns how many calls wait for those under way.
func (r *Runner) WaitingCalls() (n int) {
	r.joins.mu.Lock()
	for _, l := range r.joins.queues {
		n += len(l.calls)
	}
	r.joins.mu.Unlock()
	r.pipelines.mu.RLock()
	defer r.pipelines.mu.RUnlock()
	for _, l := range r.pipelines.queues {
		l.mu.Lock()
		n += len(l.calls)
		l.mu.Unlock()
	}
	return n
}

// Flights returns how many pipelines, and calls by themselves, are under way.
func (r *Runner) Flights() (n int) {
	r.pipelines.mu.RLock()
	defer r.pipelines.mu.RUnlock()
	for _, l := range r.pipelines.queues {
		l.mu.Lock()
		n += l.underWay
		l.mu.Unlock()
	}
	return n
}

// Joins returns how many groups have calls under way.
func (r *Runner) Joins() int {
	r.joins.mu.Lock()
	defer r.joins.mu.Unlock()
	return len(r.joins.queues)
}

// Answers is how many kinds of answers are known.
func Answers() int { return len(answers) }

// AnswerOf returns which of the known answers an error is, or -1.
func AnswerOf(err error) int { return slices.Index(answers, verdictOn(err)) }
