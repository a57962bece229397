package core

import "time"

// What the tests of this package see, which are outside of it because they use guards.

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

// LogAgain has an observer of LogErrors log the next error, whenever it logged the last.
func LogAgain(o Observer) { o.(*logErrors).last = time.Time{} }

// OpenBreakers returns how many breakers of the engine are open.
func (e *Engine) OpenBreakers() int64 { return e.breakers.open.Load() }

// SetObeysDeadline has the engine believe that its client ends a call when its context is over, or not.
func (e *Engine) SetObeysDeadline(obeys bool) { e.obeysDeadline = obeys }
