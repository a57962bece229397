package script_test

import (
	"maps"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
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

func wantTally(t testing.TB, g *votes.Guard, poll string, want map[string]int64) {
	t.Helper()
	if got := tally(t, g, poll); !maps.Equal(got, want) {
		t.Fatalf("tally %v, want %v", got, want)
	}
}

func closing(t testing.TB, c interface {
	script.Client
	Close() error
}) script.Client {
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// calmCluster starts a cluster whose nodes take none for dead that stands still for less than a minute.
func calmCluster(t testing.TB) *redistest.ClusterServers {
	t.Helper()
	c := redistest.StartCluster(t)
	for _, node := range c.Nodes {
		if err := node.Client(t).ConfigSet(t.Context(), "cluster-node-timeout", "60000").Err(); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// patientOptions are those of a client of the cluster that waits as long for a server that stands still.
func patientOptions(c *redistest.ClusterServers) *redis.ClusterOptions {
	opt := c.Options().Cluster()
	opt.ReadTimeout = time.Minute
	return opt
}

// patientClient returns such a client.
func patientClient(t testing.TB, c *redistest.ClusterServers) *redis.ClusterClient {
	rdb := redis.NewClusterClient(patientOptions(c))
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}
