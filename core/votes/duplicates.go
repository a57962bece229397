package votes

import (
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

// duplicateKeys is how many duplicates a process remembers.
const duplicateKeys = 1 << 16

// newDuplicates makes a memory of the attempts that are duplicates, each for at most so long and for at most
// a second, so that voters who try again and again stay out of Redis.
//
// A duplicate can end, by what is taken back. What this process takes back drops the answer, and those that
// are under way; what others take back is seen when the time is over. Only attempts that came without an
// operation ID may be answered: an ID from outside may be that of the first attempt, which has to hear its
// stored answer.
func newDuplicates(most time.Duration) *core.Recall[string, votedBefore] {
	return core.NewRecall[string, votedBefore](duplicateKeys, min(most, time.Second))
}
