// Package core decides attempts with one Lua script call on Redis. It knows no HTTP.
//
// # Engine
//
// An application makes one [Engine] per Redis, over its own go-redis client, and makes guards with it. The
// guards are packages of their own:
//
//	gate := core.New(rdb)
//	site := limit.NewSlidingWindow(gate, "site", limit.PerMinute(100))
//
//	d, err := site.Check(ctx, core.Attempt{Actor: "203.0.113.7"})
//	switch {
//	case err != nil: // nothing is known: Redis could not be asked, or errors.Is(err, core.ErrInvalid)
//	case !d.Allowed: // d.Reason says why, d.RetryAfter how long to wait
//	}
//
// [New] does not talk to Redis. [NewMemory] makes an engine without Redis, for one process: rate limits,
// semaphores and locks work on it, and all other guards panic when they are made.
//
// # Attempts, decisions and endings
//
// An [Attempt] says who (Actor) does what (Resource), which of several (Item), how much (Cost), and under
// which operation ID. A [Guard] answers it with a [Decision]. After the work, pass the decision to
// Guard.Settle with an [Ending]: [Commit], [CommitWith], [CommitCost] or [Rollback]. Web applications leave
// both calls to the packages nethttpmw, ginmw, echomw and echov5mw.
//
// # Guards
//
//   - limit: rate limits. Most callers want limit.NewSlidingWindow.
//   - bans: locks out actors who were refused too often.
//   - votes: one vote per voter, or as many as the poll allows.
//   - quota: a number of different items per period.
//   - seckill: flash sales that cannot oversell.
//   - redpacket: an amount that is split among the first who ask.
//   - idempotency: each operation runs once, and repetitions get its answer.
//   - semaphore: at most N at a time.
//   - lock: one holder at a time.
//
// Package delay has a queue of tasks that are due later; it is a kit.Tool, which no rule checks.
//
// Each guard decides in a single script call by the server's clock, so that any number of processes can share
// it. Every key that it writes expires.
//
// # Outages
//
// A check ends within the engine's deadline ([WithDeadline]). A breaker ([WithBreaker]) stops asking a Redis
// that does not answer. The [Outage] policy of the rule then decides the attempt: [FailClosed], [FailOpen] or
// [FailLocal]. An [Observer] is told of every decision and every error. At the end of a process, [Drain]
// waits for what is still being settled.
//
// # Guards and scripts of an application
//
// [Engine.Run] runs a script of the application: see package script. Package kit has what guards are made
// with; the guards listed above use the same functions, and docs/new-guard.md in the repository walks through
// one.
//
// Everything in this package is safe for concurrent use, unless its documentation says otherwise.
package core
