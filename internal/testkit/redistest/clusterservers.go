package redistest

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// ClusterServers is a test's own cluster, to be broken: three masters with a replica each, which fail over
// after 2 s of silence. Its methods fail the test on errors, so call them on the test's goroutine.
type ClusterServers struct {
	// Nodes are the six servers, masters and replicas in no certain order.
	Nodes []*Server

	t        testing.TB
	replaced map[*Server]time.Time // when each was replaced last, see Failover
}

// StartCluster starts a cluster and stops it when the test ends. It takes about two seconds, so tests that
// only use a cluster should take the shared one of [Cluster].
func StartCluster(t testing.TB) *ClusterServers {
	t.Helper()
	Need(t, Program())
	procs, err := launchCluster(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := &ClusterServers{t: t, replaced: map[*Server]time.Time{}}
	for _, p := range procs {
		t.Cleanup(p.close)
		c.Nodes = append(c.Nodes, &Server{t: t, p: p})
	}
	return c
}

// Client returns a new client of the cluster, which is closed when t ends.
func (c *ClusterServers) Client(t testing.TB) *redis.ClusterClient {
	t.Helper()
	return closing(t, redis.NewClusterClient(c.Options().Cluster()))
}

// Options returns new options for a client of the cluster, like [Backend.Options].
func (c *ClusterServers) Options() *redis.UniversalOptions {
	var addrs []string
	for _, n := range c.Nodes {
		addrs = append(addrs, n.Addr())
	}
	opt := options(addrs...)
	opt.IsClusterMode = true
	return opt
}

// MasterOf returns the master of the key's slot, see [ClusterServers.MasterOfSlot].
func (c *ClusterServers) MasterOf(key string) *Server {
	c.t.Helper()
	return c.MasterOfSlot(Slot(key))
}

// MasterOfSlot returns the master of the slot as most of the running nodes see it. For up to two seconds
// after a master's death that is still the dead one: see [ClusterServers.AwaitFailover].
func (c *ClusterServers) MasterOfSlot(slot int) *Server {
	c.t.Helper()
	votes := make(map[string]int)
	var best string
	for _, n := range c.Nodes {
		if addr := n.masterOfSlot(slot); addr != "" {
			if votes[addr]++; votes[addr] > votes[best] {
				best = addr
			}
		}
	}
	for _, n := range c.Nodes {
		if n.Addr() == best {
			return n
		}
	}
	c.t.Fatalf("redistest: no node knows a master of slot %d", slot)
	return nil
}

// masterOfSlot returns the address of the slot's master as this node sees it, or "" when the node does not
// know.
func (s *Server) masterOfSlot(slot int) string {
	if !s.Running() {
		return ""
	}
	ctx, cancel := shortContext()
	defer cancel()
	slots, err := s.p.admin.ClusterSlots(ctx).Result() //nolint:staticcheck // it is what cluster clients ask
	if err != nil {
		return ""
	}
	for _, r := range slots {
		if r.Start <= slot && slot <= r.End && len(r.Nodes) > 0 {
			return r.Nodes[0].Addr
		}
	}
	return ""
}

// KillMasterOfSlot kills the master of the slot and returns it.
func (c *ClusterServers) KillMasterOfSlot(slot int) *Server {
	c.t.Helper()
	master := c.MasterOfSlot(slot)
	master.Kill()
	return master
}

// AwaitFailover waits until every running node (a paused one never answers) sees a master of the slot other
// than old, and a complete cluster again. It returns that master.
//
// A go-redis cluster client does not notice a dead master's silence: it reloads its state every 60 s, or
// when a node redirects it. Call its ReloadState, or set ClusterStateReloadInterval.
func (c *ClusterServers) AwaitFailover(slot int, old *Server) *Server {
	c.t.Helper()
	Eventually(c.t, startTimeout, func() bool {
		for _, n := range c.Nodes {
			if n == old || !n.Running() {
				continue
			}
			addr := n.masterOfSlot(slot)
			if addr == "" || addr == old.Addr() || !n.p.clusterInfo("cluster_state:ok") {
				return false
			}
		}
		return true
	}, fmt.Sprintf("another master of slot %d than %s", slot, old.Addr()))
	return c.MasterOfSlot(slot)
}
