// Package gatehouse is the root of middleware for gin, echo and net/http (chi and friends): rate limits that
// never admit more than N in any window, one vote per user, flash sales that never oversell. Small Lua
// scripts on Redis decide. This package has no names; an application imports
//
//   - core, for the engine: gate := core.New(client)
//   - the guards that it needs: core/limit, core/votes, core/seckill, core/budget, core/waitingroom, ...
//   - keyfuncs, which say who is counted
//   - one adapter: ginmw, echomw or nethttpmw (echov5mw and fibermw are modules of their own)
//
// The most common limit is one line:
//
//	r.Use(ratelimit.PerIP(gate, limit.PerMinute(100))) // import ratelimit ".../ginmw"
//
// Beside them: embedded (a Redis inside the process), gatehousetest (for tests of applications), config
// (rules in a file), control, operator and observe (for operators), deferred (refused requests that run
// later).
// The README and docs have the rest: https://github.com/gatehouse-go/gatehouse.
package gatehouse
