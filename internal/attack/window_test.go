package attack

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestMostInIsTheDefinition: of all windows that begin when an admission can have begun, the one that
// contains the most admissions with all of their time.
func TestMostInIsTheDefinition(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	begun := time.Now()
	for range 300 {
		window := time.Duration(1 + rng.IntN(50))
		admitted := make([]Admission, rng.IntN(40))
		for i := range admitted {
			after := begun.Add(time.Duration(rng.IntN(100)))
			admitted[i] = Admission{after, after.Add(time.Duration(rng.IntN(20)))}
		}
		want := 0
		for _, first := range admitted {
			inside := 0
			for _, a := range admitted {
				if !a.After.Before(first.After) && a.Before.Sub(first.After) < window {
					inside++
				}
			}
			want = max(want, inside)
		}
		if got := MostIn(window, admitted); got != want {
			t.Fatalf("seed %d: MostIn(%d, %v) = %d, want %d", seed, window, admitted, got, want)
		}
	}
}
