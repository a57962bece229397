package limit

import (
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestAUnitThatHasLeftNeverCountsAgain: an attempt that was admitted since has noted it. Whether a longer
// window brought the unit back depended on what the log had dropped, and a refund of it was none in the process.
func TestAUnitThatHasLeftNeverCountsAgain(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		for name, longer := range map[string]Limit{
			"one.by.one": Per(5, time.Hour), "by.parts": {Max: 5, Window: time.Hour, Resolution: 60},
		} {
			w := newTwins(b, kinds[0], name)
			taken := w.must(t, []Limit{Per(10, time.Minute)}, 2)
			w.clock.Advance(time.Second)
			w.must(t, []Limit{Per(5, time.Minute)}, 1)
			w.clock.Advance(time.Minute - time.Second/2)
			w.must(t, []Limit{Per(5, time.Minute)}, 1)
			if err := w.refund(t.Context(), taken); err != nil {
				t.Fatal(err)
			}
			w.clock.Advance(time.Second)
			if left := w.must(t, []Limit{longer}, 1).redis.Remaining; left != 2 {
				t.Errorf("%s: %d left of 5, after 2 that have left and 3 others", name, left)
			}
		}
	})
}

// TestALogKeepsTheNewestUnitsOfALargeCost: of a cost above what the log keeps for others, the process kept
// all.
func TestALogKeepsTheNewestUnitsOfALargeCost(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		w := newTwins(b, kinds[0], "s")
		w.must(t, []Limit{Per(1000, time.Hour)}, 1)
		byParts := Per(9_999, time.Minute)
		byParts.Resolution = 60
		w.must(t, []Limit{byParts}, 6_512)
		w.clock.Advance(time.Second)
		if left := w.must(t, []Limit{Per(10_000, time.Hour)}, 1).redis.Remaining; left != 10_000-1_250-1 {
			t.Errorf("%d left of 10,000; a log for 1000 keeps a quarter more", left)
		}
	})
}

// must checks an attempt of ann, which both allow, and returns their equal answers.
func (w *twins) must(t *testing.T, limits []Limit, cost int64) answers {
	t.Helper()
	w.limits = limits
	id := w.clock.Now().String() + limits[0].String()
	both, err := w.check(t.Context(), core.Attempt{Actor: "ann", ID: id, Cost: cost})
	if err != nil || !both.redis.Allowed {
		t.Fatalf("%+v, %v", both, err)
	}
	return both
}
