// Package limit has rate limits on Redis: [SlidingWindow], [FixedWindow] and [TokenBucket].
//
// # Which limit
//
// Most callers want [NewSlidingWindow]:
//
//	site := limit.NewSlidingWindow(gate, "site", limit.PerMinute(100))
//
// It admits at most N units in any window of the given length, and it refuses nobody below N. A fixed
// window admits up to 2N-1 units in some windows, and a token bucket up to its burst and one refill. Both
// need one small key per actor, whatever N is. All three decide in one script call, take nothing when they
// refuse, and accept several limits at once.
//
// # Limits
//
// A [Limit] is a number of units per window: [PerSecond], [PerMinute], [PerHour], [PerDay] or [Per]. [Parse]
// and [ParseAll] read limits from text such as "10/s, 100/min". [Limit.WithResolution] bounds the memory of a
// large limit. Package lease lets a process decide most attempts of a hot actor without a call to Redis. The
// constructors that end in By take a [Func], which chooses the limits per attempt.
//
// # Operating
//
// Peek returns the units left and takes nothing. Reset forgets the used units. Refund gives back the units
// of a decision. Spend reports the real cost of an attempt whose Cost was an estimate.
//
// # Without Redis
//
// On an engine without Redis ([core.NewMemory]), and under the outage policy [core.FailLocal], the same
// decisions are made inside the process.
//
// All types are safe for concurrent use.
package limit
