package script_test

import (
	"maps"
	"testing"

	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/lua"
)

// Scripts that tests recognize by the hash of their source when they are sent.
var (
	voteScript     = script.New("vote", lua.Source("votes/vote"), script.Idempotent)
	voteUndoScript = script.New("vote_undo", lua.Source("votes/undo"), script.Idempotent)
)

func openSale(t testing.TB, g *seckill.Guard, item string, sale seckill.Sale) {
	t.Helper()
	if opened, err := g.Open(t.Context(), item, sale); err != nil || !opened {
		t.Fatalf("Open: %v, %v", opened, err)
	}
}

func wantStatus(t testing.TB, g *seckill.Guard, item string, left, held, sold int64) {
	t.Helper()
	s, err := g.Status(t.Context(), item)
	want := seckill.Status{Stock: left + held + sold, Left: left, Held: held, Sold: sold, Epoch: s.Epoch}
	if err != nil || s != want || s.Epoch == 0 {
		t.Fatalf("status %+v (%v), want %+v", s, err, want)
	}
	if found, err := g.Verify(t.Context(), item); err != nil || !found.Consistent() {
		t.Fatalf("the records of %q: %v, %v", item, found, err)
	}
}

func tally(t testing.TB, g *votes.Guard, poll string) map[string]int64 {
	t.Helper()
	sums, err := g.Tally(t.Context(), poll)
	if err != nil {
		t.Fatal(err)
	}
	return sums
}

func wantTally(t *testing.T, g *votes.Guard, poll string, want map[string]int64) {
	t.Helper()
	if got := tally(t, g, poll); !maps.Equal(got, want) {
		t.Fatalf("tally %v, want %v", got, want)
	}
}

func closing(t *testing.T, c interface {
	script.Client
	Close() error
}) script.Client {
	t.Cleanup(func() { _ = c.Close() })
	return c
}
