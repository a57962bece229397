package parts

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// ballots is a guard of polls in one slot, or in parts.
type ballots interface {
	core.Guard
	votes.Polls
	Engine() *core.Engine
	Retract(ctx context.Context, a core.Attempt) (core.Decision, error)
	Audit(ctx context.Context, poll, after string, count int) ([]votes.Event, string, error)
}

// newBallots makes a guard of so many parts; 0: of package votes.
func newBallots(e *core.Engine, parts int, options votes.Options) ballots {
	if parts == 0 {
		return votes.New(e, "v", options)
	}
	return New(e, "v", parts, options)
}

func wantTally(t *testing.T, g ballots, poll string, want map[string]int64) {
	t.Helper()
	if got, err := g.Tally(t.Context(), poll); err != nil || !maps.Equal(got, want) {
		t.Fatalf("tally %v, want %v (%v)", got, want, err)
	}
}

func wantVerified(t testing.TB, g ballots, poll string, want map[string]int64) {
	t.Helper()
	r, err := g.Verify(t.Context(), poll)
	if err != nil || !r.Consistent() || !maps.Equal(r.Records, want) {
		t.Fatalf("want %v: %v%v", want, r, err)
	}
}

// wantLost wants an error that says what is lost.
func wantLost(t *testing.T, err error, what string) {
	t.Helper()
	if !errors.Is(err, votes.ErrLost) || !strings.Contains(err.Error(), what) {
		t.Errorf("%v: want an ErrLost that names the %s", err, what)
	}
}

func retract(t *testing.T, g ballots, a core.Attempt, want core.Reason) {
	t.Helper()
	d, err := g.Retract(t.Context(), a)
	if err != nil {
		t.Fatalf("Retract(%+v): %v", a, err)
	}
	guardtest.WantReason(t, d, want)
}

// auditOf reads a whole audit stream, a given number of events at a time.
func auditOf(t rapid.TB, g ballots, poll string, count int) (events []votes.Event) {
	t.Helper()
	position := ""
	for {
		found, next, err := g.Audit(context.Background(), poll, position, count)
		if err != nil || len(found) > count || (len(found) == 0) != (next == position) {
			t.Fatalf("audit after %q: %d events, then %q, %v", position, len(found), next, err)
		}
		if len(found) == 0 {
			return events
		}
		events, position = append(events, found...), next
	}
}

// told returns the sums of the events.
func told(events []votes.Event) map[string]int64 {
	sums := map[string]int64{}
	for _, e := range events {
		sign := int64(-1)
		if e.Kind == votes.EventCast || e.Kind == votes.EventChanged {
			sign = 1
		}
		sums[e.Choice] += sign * e.Weight
		sums[e.Former] -= sign * e.FormerWeight
	}
	maps.DeleteFunc(sums, func(_ string, sum int64) bool { return sum == 0 })
	return sums
}
