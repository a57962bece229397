package histories

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

// jumping is a world whose clock is wrong: between the phases of a history it is set, forward or back.
func jumping(t *testing.T) *world {
	w := shared(redistest.Single)(t)
	w.jumps = true
	return w
}

// jump is how far a clock that is wrong moves between two phases.
func jump(rng *rand.Rand) time.Duration {
	jumps := []int{-30, -20, -11, -6, -1, 1, 5, 11, 13, 30}
	return time.Duration(jumps[rng.IntN(len(jumps))]) * time.Second
}
