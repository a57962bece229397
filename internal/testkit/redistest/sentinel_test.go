package redistest

import (
	"strconv"
	"testing"
	"time"
)

// TestSentinels: a client of the sentinels follows the primary through a failover on demand and through the
// primary's death, without losing what the replicas had.
func TestSentinels(t *testing.T) {
	LeftToCI(t)
	t.Parallel()
	s := StartSentinels(t, 2)
	rdb := s.Client(t)
	first := s.Primary()
	if first != s.Servers[0] {
		t.Errorf("the primary is %s, want %s", first.Addr(), s.Servers[0].Addr())
	}
	write := func(key string) {
		t.Helper()
		Eventually(t, startTimeout, func() bool {
			return rdb.Set(t.Context(), key, "x", time.Minute).Err() == nil &&
				rdb.Wait(t.Context(), 2, time.Second).Val() == 2
		}, "a write that both replicas have")
	}
	write("a")
	second := s.Failover()
	if second == first {
		t.Fatal("the primary is the same after a failover")
	}
	follows := func() bool { return first.p.replication("role:slave", "master_link_status:up") }
	Eventually(t, startTimeout, follows, "the former primary is a replica")
	write("b")
	second.Kill()
	third := s.AwaitFailover(second)
	second.Start()
	second.ReplicaOf(third)
	write("c")
	for _, key := range []string{"a", "b", "c"} {
		if err := second.Client(t).Get(t.Context(), key).Err(); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// TestSentinelsDoNotReplaceABusyPrimary: a primary that is silent for a moment stays the primary, before a
// failover and after it.
func TestSentinelsDoNotReplaceABusyPrimary(t *testing.T) {
	LeftToCI(t)
	t.Parallel()
	s := StartSentinels(t, 1)
	busy := func() {
		t.Helper()
		primary := s.Primary()
		primary.Pause()
		defer primary.Resume()
		s.await("a primary that is silent for longer than it takes to be dead", func(state map[string]string) bool {
			silent, err := strconv.Atoi(state["last-ping-sent"]) // milliseconds without an answer
			return err == nil && silent > 700 || state["flags"] != "master"
		})
		for _, sentinel := range s.Sentinels {
			if state := sentinel.monitored(); state["flags"] != "master" || s.Primary() != primary {
				t.Errorf("%s has %s at %s, want a master at %s", sentinel.Addr(), state["flags"], state["port"],
					primary.Addr())
			}
		}
	}
	busy()
	old := s.Primary()
	old.Kill()
	heir := s.AwaitFailover(old)
	old.Start()
	old.ReplicaOf(heir)
	busy()
}

// TestClusterFailoverLosesNothing: where the master is alive it hands over all that it has; the dead one
// comes back as a replica.
func TestClusterFailoverLosesNothing(t *testing.T) {
	LeftToCI(t)
	t.Parallel()
	c := StartCluster(t)
	rdb := c.Client(t)
	slot := Slot("k")
	if err := rdb.Set(t.Context(), "k", "1", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	first := c.MasterOfSlot(slot)
	second := c.Failover(slot)
	if second == first {
		t.Error("the master is the same after a failover")
	}
	if got, err := second.Client(t).Get(t.Context(), "k").Result(); got != "1" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	Eventually(t, startTimeout, func() bool { return first.p.joined() }, "the former master is a replica")
	second.Kill()
	if third := c.Replace(slot, second, first); third != first {
		t.Errorf("%s replaced %s, want its replica %s", third.Addr(), second.Addr(), first.Addr())
	}
	c.Rejoin(second)
	if !second.p.replication("role:slave") {
		t.Error("the dead master is no replica")
	}
}
