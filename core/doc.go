// Package core is the part of Gatehouse that knows no HTTP: guards that decide attempts by one Lua script on Redis.
//
// An Engine is made once a process over the application's own go-redis client, and makes guards:
//
//	gate := core.New(rdb)
//	site := gate.SlidingWindow("site", core.PerMinute(100))
//
//	d, err := site.Check(ctx, core.Attempt{Actor: "203.0.113.7"})
//	switch {
//	case err != nil: // nothing was decided: Redis could not be asked, or the attempt makes no sense
//	case !d.Allowed: // d.Reason says why, d.RetryAfter when another attempt makes sense
//	}
//
// An Attempt says who (Actor) does what (Resource), which of several (Item), how much (Cost), and under which operation
// ID. A guard that lets an attempt through may want to hear how it ended: pass its Decision to Settle. Web applications
// leave all of that to the packages nethttpmw, ginmw and echomw.
//
// The guards are SlidingWindow, FixedWindow and TokenBucket (rate limits), Bans (who is refused too often is shut out), Votes (one
// vote a voter), Quota (so many different items a period), Seckill (a stock that can not be oversold) and RedPacket (an amount that is split by luck). Of the rate limits most want SlidingWindow, the only one that is
// never exceeded; the others keep less in Redis. Each decides in a single script call with the server's clock, so any number of
// processes can share a guard, and every key that it writes expires. All of the package is safe for concurrent use.
//
// Who goes on after a rate limit has refused is answered from memory, for a second at most: see WithRefusalMemory.
//
// NewMemory makes an engine without Redis, whose rate limits decide exactly the same inside the process.
//
// An outage of Redis costs a few time-outs: see WithBreaker. What the guards decide, and what goes wrong, an Observer hears.
//
// Scripts of one's own run the same way with Engine.Run.
package core
