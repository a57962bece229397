package votes

import (
	"time"

	"github.com/gatehouse-go/gatehouse/core/kit"
)

// duplicateKeys bounds the number of duplicates that a process remembers.
const duplicateKeys = 1 << 16

// newDuplicates makes a memory of duplicates that keeps each one for the given time, at most one second. It
// keeps repeated attempts of a voter away from Redis.
//
// A duplicate ends when its vote is taken back. A rollback, retraction or void in this process drops the
// remembered answer and the answers in flight. In another process it takes effect here when the time is
// over. The memory may answer only attempts without an operation ID, because an ID from outside may belong
// to the first attempt, and Redis replays its stored answer.
func newDuplicates(most time.Duration) *kit.Recall[string, votedBefore] {
	return kit.NewRecall[string, votedBefore](duplicateKeys, min(most, time.Second))
}
