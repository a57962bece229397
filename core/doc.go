// Package core decides attempts with one Lua script call on Redis. It knows no HTTP.
//
// # What an application uses
//
//	gate := core.New(rdb)                            // one Engine per Redis, over your go-redis client
//	poll := votes.New(gate, "poll", votes.Options{}) // a Guard; each kind has a package
//
//	d, err := poll.Check(ctx, core.Attempt{Actor: "ann", Resource: "final", Item: "red"})
//	switch {
//	case err != nil: // undecided: Redis did not answer, or errors.Is(err, core.ErrInvalid)
//	case !d.Allowed: // d.Reason says why, d.RetryAfter how long to wait
//	default: // do the work, and then say how it ended
//		err = poll.Settle(ctx, d, core.Commit) // or core.Rollback, which takes the vote back
//	}
//	err = core.Drain(ctx) // at the end of the process
//
// These are the names to know:
//
//   - [New] makes an [Engine]. It does not talk to Redis. [NewMemory] makes one without Redis, for one
//     process: rate limits, semaphores and locks work on it, and all other guards panic when they are made.
//   - A [Guard] decides: Check takes the units of an attempt, and Settle says how the attempt ended.
//   - An [Attempt] has the Actor (who), the Resource (what), the Item (which of several), the Cost (how
//     much), and the operation ID.
//   - A [Decision] is the answer: Allowed, the [Reason], and the client's figures.
//   - An [Ending] is [Commit], [CommitWith], [CommitCost] or [Rollback].
//   - [Drain] waits at the end of a process, until its context ends, for attempts that are still being
//     settled.
//
// Web applications use New and Drain, and leave Check and Settle to the rules of packages nethttpmw, ginmw,
// echomw and echov5mw.
//
// # Guards
//
//   - limit: rate limits. Most callers need limit.NewSlidingWindow.
//   - bans: locks out actors who were refused too often.
//   - votes: one vote per voter, or as many as the poll allows.
//   - quota: a number of different items per period.
//   - seckill: flash sales that cannot oversell.
//   - redpacket: an amount that is split among the first who ask.
//   - idempotency: each operation runs once, and repetitions get its answer.
//   - semaphore: at most N at a time.
//   - lock: one holder at a time.
//
// Package delay has a queue of tasks that are due later. It is a kit.Tool, which no rule checks.
//
// Each guard decides in a single script call by the server's clock, so that any number of processes can share
// it. Every key that it writes expires.
//
// # Outages
//
// A check ends within the engine's deadline ([WithDeadline]). A breaker ([WithBreaker]) stops asking a Redis
// that does not answer. The [Outage] policy of the rule then decides the attempt: [FailClosed], [FailOpen] or
// [FailLocal]. An [Observer] is told of every decision and every error.
//
// # Guards and scripts of an application
//
// [Engine.Run] runs a script of the application: see package script. Package kit has the functions for new
// guards. The guards listed above use them too. docs/new-guard.md in the repository walks through a guard.
//
// Everything in this package is safe for concurrent use, unless its documentation says otherwise.
package core
