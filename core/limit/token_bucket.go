package limit

import (
	"github.com/gatehouse-go/gatehouse/core"
)

// Twice the square of the largest Max is below 2^53, so that the products in the script are exact integers.
var tokenBucket = newAlgorithm("bucket", "token_bucket", newBucket, upTo(10_000_000, "a token bucket holds"))

// TokenBucket is a rate limit with bursts. A bucket holds Max units, and an attempt takes its cost from it.
// Units flow in steadily, so that an empty bucket is full after Window. PerMinute(60) is one unit per second
// with bursts of 60. For a smaller burst at the same rate, use a smaller bucket that fills sooner: Per(10,
// 10*time.Second) is one unit per second with bursts of 10.
//
// The worst case is twice the limit. A full bucket plus the inflow is Max + Max*t/Window units in a time t,
// and thus 2*Max in a Window. For at most 60 units in any minute, use [SlidingWindow].
//
// The algorithm is the Generic Cell Rate Algorithm (ATM Forum, Traffic Management Specification 4.1), by the
// server's clock. It keeps one small key per actor and resource, whatever Max is. It counts in integers, so
// it never loses or gains a fraction of a unit. Remaining is in whole units, and RetryAfter is exact, rounded
// up to the microsecond.
//
// A refused attempt takes nothing. Attempts with different Resources have separate buckets. When the
// server's clock is set back, a bucket stays as full as it was when units were taken last. Nobody has more
// than before, and nobody waits longer than the usual wait. A clock that is set forward is believed.
//
// A Refund returns units unless the bucket has been full since the attempt, and it never overfills the
// bucket. After a late Refund, an actor may exceed the worst case by the refunded units, because the bucket
// does not know which units have flowed in since.
//
// It is safe for concurrent use.
type TokenBucket struct{ limiter }

// NewTokenBucket returns a [TokenBucket] that is named name on e. With several limits, an attempt must fit
// all of them, or it takes nothing from any. A refusal names the limit with the longest wait. Max is at
// most 10,000,000.
//
// It panics when the name is invalid or already in use, or when a limit is invalid.
//
// When a deployment changes the Max of a limit, the bucket stays as full as it was, as a fraction of its
// size. A Window that is changed or added begins with a full bucket.
func NewTokenBucket(e *core.Engine, name string, limit Limit, more ...Limit) *TokenBucket {
	g := &TokenBucket{newLimiter(e, tokenBucket, name, nil, append([]Limit{limit}, more...)...)}
	g.ready(g)
	return g
}

// NewTokenBucketBy is [NewTokenBucket] with a function that returns the limits of each attempt. It panics
// when the name is invalid or already in use, or when the function is nil.
func NewTokenBucketBy(e *core.Engine, name string, limits Func) *TokenBucket {
	g := &TokenBucket{newLimiter(e, tokenBucket, name, limits)}
	g.ready(g)
	return g
}
