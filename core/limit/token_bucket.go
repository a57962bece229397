package limit

import (
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/lua"
)

// The largest Max is such that the script's products stay integers: twice its square is below 2^53.
var tokenBucket = newAlgorithm("bucket", "token_bucket", lua.TokenBucket, lua.TokenBucketRefund, newBucket,
	upTo(10_000_000, "a token bucket holds"))

// TokenBucket is a rate with bursts: a bucket holds Max units, an attempt takes its cost out, and units flow in steadily, so
// that an empty bucket is full after Window. PerMinute(60) is one unit a second with bursts of 60. A smaller burst at the same
// rate is a smaller bucket that fills sooner: Per(10, 10*time.Second) is one a second with bursts of 10.
//
// Its worst case is twice the limit: a full bucket at once and what flows in meanwhile are Max + Max*t/Window units in any
// time t, so 2*Max in a Window. For at most 60 in any minute take SlidingWindow.
//
// It is the Generic Cell Rate Algorithm (ATM Forum, Traffic Management Specification 4.1) by the server's clock, and keeps
// one small key, whatever Max is. It counts in integers, so no fraction of a unit is lost or gained however long it runs;
// Remaining is what is left in whole units, and RetryAfter is exact, rounded up to the microsecond.
//
// A refused attempt takes nothing. Attempts with different Resources have separate buckets. While a clock that was set back
// catches up, nothing flows into the buckets that were in use. So nobody gets more, and nobody waits longer than what the clock
// was set back by and what it takes without.
//
// A Refund puts units back unless
// the bucket has been full since they were taken, and never more than it holds. Who gives back late may have, above the
// worst case, what was given back: the bucket does not know which units the time in between has brought.
type TokenBucket struct{ limiter }

// TokenBucket makes a rate limit. With several limits an attempt must fit all of them, or it takes nothing of any, and a refusal
// names the one that takes longest. It panics when the name is taken or not a name, or the limits make no sense: a Max is
// at most 10,000,000.
//
// A limit whose Max is changed goes on from a bucket that is as full as before, in parts of what it holds.
func NewTokenBucket(e *core.Engine, name string, limit Limit, more ...Limit) *TokenBucket {
	return &TokenBucket{newLimiter(e, tokenBucket, name, nil, append([]Limit{limit}, more...)...)}
}

// TokenBucketBy is TokenBucket with limits that a function gives for each attempt. It panics when the name is taken or not a
// name, or there is no function.
func NewTokenBucketBy(e *core.Engine, name string, limits Func) *TokenBucket {
	return &TokenBucket{newLimiter(e, tokenBucket, name, limits)}
}
