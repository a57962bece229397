package lease

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestALeaseOfRareChecksTurnsItselfOff: with 0.7 checks per process and part, what was fetched ahead and given
// back cost 1.11 calls per check. When more of them come, the lease is on again.
func TestALeaseOfRareChecksTurnsItselfOff(t *testing.T) {
	b := redistest.Single(t)
	clock, of := guardtest.NewClock(), limit.PerHour(4000)
	processes := make([]*leasing, 20)
	for i := range processes {
		processes[i] = newLeasing(b, "rare", of, guardtest.WithClock(clock))
	}
	sent := func() (n int64) {
		for _, p := range processes {
			n += p.lossy.sent.Load()
		}
		return n
	}
	random := rand.New(rand.NewPCG(1, 2))
	// each makes checks at random moments, with some in a part for each process, and returns the calls and the
	// checks that cost none, for each check.
	each := func(inPart float64, checks int) (calls, spared float64) {
		gap := float64(part(of.WithResolution(parts))) / inPart / float64(len(processes))
		for range checks / 3 { // before it counts
			clock.Advance(time.Duration(random.ExpFloat64() * gap))
			guardtest.Check(t, processes[random.IntN(len(processes))], tenant)
		}
		before := sent()
		for range checks {
			clock.Advance(time.Duration(random.ExpFloat64() * gap))
			if guardtest.Check(t, processes[random.IntN(len(processes))], tenant).Source == core.SourceLease {
				spared++
			}
		}
		return float64(sent()-before) / float64(checks), spared / float64(checks)
	}
	turns := []struct{ inPart, most, least float64 }{{0.7, 1.02, 0}, {8, 0.45, 0.6}, {0.7, 1.02, 0}}
	for _, turn := range turns {
		calls, spared := each(turn.inPart, 1500)
		t.Logf("%.1f checks in a part: %.3f calls each, %.3f without one", turn.inPart, calls, spared)
		if calls > turn.most || spared < turn.least {
			t.Errorf("want %.2f calls at most, and %.2f without one", turn.most, turn.least)
		}
	}
}
