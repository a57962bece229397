package core_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/timed"
)

// TestWhatAMasterThatIsCutOffAdmits is what docs/operations/capacity.md says about a cluster that is cut in
// two: the master on the smaller side goes on by its own count until it has missed the others for
// cluster-node-timeout, and it asks each of them at least twice in that time. So it admits at most what a
// limit has left, or what arrives in one and a half times that. The other side goes on from what was
// replicated before the cut, and so admits the same units again; then what the first admitted is forgotten.
//
// Promise: A cluster master that is cut off admits at most what the limit has left there, until it misses the
// others. The other side goes on from before the cut.
func TestWhatAMasterThatIsCutOffAdmits(t *testing.T) {
	redistest.LeftToCI(t)
	t.Parallel()
	timed.Test(t, cutOffTimeout/4, func(t *timed.T) { cutOff(t) })
}

// cutOffTimeout is the cluster-node-timeout of test clusters.
const cutOffTimeout = 2 * time.Second

func cutOff(t testing.TB) {
	const before, most, nodeTimeout = 300, 400, cutOffTimeout
	c := redistest.StartCluster(t)
	ann := core.Attempt{Actor: "ann"}
	slot := redistest.Slot("{ann}")
	master, replica := c.MasterOfSlot(slot), c.ReplicaOfSlot(slot)
	options := c.Options()
	options.MaxRedirects = -1 // the test wants to hear CLUSTERDOWN
	rdb := redis.NewUniversalClient(options)
	defer func() { _ = rdb.Close() }()
	g := limit.NewSlidingWindow(core.New(rdb, core.WithDeadline(5*time.Second), core.WithoutBreaker(),
		core.WithRefusalMemory(0), core.WithObserver(guardtest.Ignore{})), "api", limit.PerHour(most))
	for range before {
		guardtest.Check(t, g, ann)
	}
	redistest.Eventually(t, time.Minute, func() bool { // the replica has them
		return master.Client(t).Wait(t.Context(), 1, time.Second).Val() == 1
	}, "the replica has what was admitted")

	// The cut: nothing leaves the master any more, and nobody else answers it. What goes to the replica would
	// stay in its socket, and arrive later, so that connection is closed.
	begun := time.Now()
	for _, node := range c.Nodes {
		if node != master {
			node.Pause()
		}
	}
	if err := master.Client(t).Do(t.Context(), "client", "kill", "type", "replica").Err(); err != nil {
		t.Fatal(err)
	}
	cutOff, answeredLast := 0, begun
	redistest.Eventually(t, time.Minute, func() bool {
		d, err := g.Check(t.Context(), ann)
		if err == nil {
			answeredLast = time.Now()
			if d.Allowed {
				cutOff++
			}
		}
		return err != nil
	}, "the master that is cut off refuses")
	if cutOff != most-before {
		t.Errorf("the master that is cut off admits %d, want the %d that were left", cutOff, most-before)
	}
	lasted := answeredLast.Sub(begun)
	t.Logf("admitted %d; it answered for %v", cutOff, lasted)
	if lasted < nodeTimeout/2 || lasted > nodeTimeout*3/2+5*time.Second {
		t.Errorf("it answered for %v with a cluster-node-timeout of %v", lasted, nodeTimeout)
	}

	master.Pause() // the cut goes on, from the other side
	for _, node := range c.Nodes {
		if node != master {
			node.Resume()
		}
	}
	redistest.Eventually(t, time.Minute, func() bool { return isMaster(t, replica) }, "the replica takes over")
	others := limit.NewSlidingWindow(core.New(replica.Client(t), core.WithDeadline(5*time.Second),
		core.WithoutBreaker(), core.WithRefusalMemory(0), core.WithObserver(guardtest.Ignore{})), "api",
		limit.PerHour(most))
	again := 0
	redistest.Eventually(t, time.Minute, func() bool {
		d, err := others.Check(t.Context(), ann)
		if err == nil && d.Allowed {
			again++
		}
		return err == nil && !d.Allowed
	}, "the other side has admitted what was left")
	if again != most-before {
		t.Errorf("the other side admits %d, want the %d that were left before the cut", again, most-before)
	}
	master.Resume()
	redistest.Eventually(t, time.Minute, func() bool { return !isMaster(t, master) }, "the old master follows")
	if d, err := others.Peek(t.Context(), ann); err != nil || d.Allowed {
		t.Errorf("after the cut: %+v, %v", d, err)
	}
}

func isMaster(t testing.TB, s *redistest.Server) bool {
	t.Helper()
	role, err := s.Client(t).Do(t.Context(), "role").Slice()
	return err == nil && len(role) > 0 && role[0] == "master"
}
