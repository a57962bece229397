package histories

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// jumping is a world whose clock is wrong: between the phases of a history it is set, forward or back.
func jumping(t *testing.T) *world {
	w := shared(redistest.Single)(t)
	w.jumps = true
	return w
}

// jump is how far a clock that is wrong moves between two phases: as many times as far as a guard wants.
func jump(rng *rand.Rand, times int) time.Duration {
	jumps := []int{-30, -20, -11, -6, -1, 1, 5, 11, 13, 30}
	return time.Duration(jumps[rng.IntN(len(jumps))]*max(times, 1)) * time.Second
}

// nearMidnight sets the clock to a moment near the next midnight but one, so that its jumps lead from one day
// to another.
func (w *world) nearMidnight(rng *rand.Rand) {
	midnight := w.clock.Now().Add(36 * time.Hour).Truncate(day)
	w.clock.Set(midnight.Add(time.Duration(rng.IntN(41)-20) * time.Second))
}

const day = 24 * time.Hour
