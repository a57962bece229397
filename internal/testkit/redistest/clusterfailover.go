package redistest

import "time"

// Failover lets the replica of the slot's master replace it, and returns the new master once all running
// nodes know it. Where the master is running, the two agree about the moment (CLUSTER FAILOVER): the master
// holds back writes until the replica has all that it has. (The others vote for a replacement of the same
// master once in four seconds, so a second one may take that long.) For a dead master see Replace.
func (c *ClusterServers) Failover(slot int) *Server {
	c.t.Helper()
	old := c.MasterOfSlot(slot)
	replica := c.ReplicaOfSlot(slot)
	Eventually(c.t, startTimeout, func() bool { return replica.p.replication("master_link_status:up") },
		replica.Addr()+" has its master's data")
	Eventually(c.t, startTimeout, func() bool { return time.Since(c.replaced[old]) > 4100*time.Millisecond },
		"the others vote again")
	c.handOver(replica)
	c.replaced[old] = time.Now()
	return c.AwaitFailover(slot, old)
}

// Replace lets a replica replace its master, which was killed, and returns the new master once all running
// nodes know it. On a busy machine the others may have replaced it before they are told to.
func (c *ClusterServers) Replace(slot int, killed, replica *Server) *Server {
	c.t.Helper()
	_ = replica.p.admin.Do(c.t.Context(), "cluster", "failover", "takeover").Err() // a master refuses
	return c.AwaitFailover(slot, killed)
}

// Promote lets the replica of the slot's running master replace it at once, and returns the new master when
// all running nodes know it, the old one too. Nobody votes, so it can be done again at once. Writes that the
// replica does not have yet are lost.
func (c *ClusterServers) Promote(slot int) *Server {
	c.t.Helper()
	old := c.MasterOfSlot(slot)
	replica := c.ReplicaOfSlot(slot)
	Eventually(c.t, startTimeout, func() bool { return replica.p.replication("master_link_status:up") },
		replica.Addr()+" has its master's data")
	replica.do("cluster", "failover", "takeover")
	Eventually(c.t, startTimeout, func() bool { return !old.Running() || old.p.replication("role:slave") },
		old.Addr()+" knows that it was replaced")
	return c.AwaitFailover(slot, old)
}

// handOver lets a replica replace its running master. The two give up after 5 s, which a busy machine may
// take, and are then asked again.
func (c *ClusterServers) handOver(replica *Server) {
	c.t.Helper()
	var asked time.Time
	Eventually(c.t, startTimeout, func() bool {
		if time.Since(asked) > 6*time.Second {
			asked = time.Now()
			// It refuses where it has become the master since; what else it refuses for, it will not become it.
			_ = replica.p.admin.Do(c.t.Context(), "cluster", "failover").Err()
		}
		return replica.p.replication("role:master")
	}, replica.Addr()+" replaces its master")
}

// ReplicaOfSlot returns the replica of the slot's master. It waits until a node knows it: a master that has
// handed over is known as a replica a moment later. And it waits until the replica knows that its master has
// the slot, which only the master tells it: one that did not know would not take the slot over.
func (c *ClusterServers) ReplicaOfSlot(slot int) (replica *Server) {
	c.t.Helper()
	master := c.MasterOfSlot(slot)
	Eventually(c.t, startTimeout, func() bool {
		replica = c.replicaOf(master, slot)
		return replica != nil && (!replica.Running() || replica.masterOfSlot(slot) == master.Addr())
	}, "a node knows a replica of "+master.Addr())
	return replica
}

// replicaOf returns the replica of a slot's master, or nil if no node knows it.
func (c *ClusterServers) replicaOf(master *Server, slot int) *Server {
	ctx, cancel := shortContext()
	defer cancel()
	for _, n := range c.Nodes {
		if n == master || !n.Running() {
			continue
		}
		slots, err := n.p.admin.ClusterSlots(ctx).Result() //nolint:staticcheck // it is what cluster clients ask
		if err != nil {
			continue
		}
		for _, r := range slots {
			if r.Start > slot || slot > r.End || len(r.Nodes) < 2 {
				continue
			}
			for _, replica := range c.Nodes {
				if replica.Addr() == r.Nodes[1].Addr {
					return replica
				}
			}
		}
	}
	return nil
}

// Rejoin starts a killed node again, and waits until the cluster is whole: every replica has its master's
// data. A master that was replaced becomes the replica of its successor.
func (c *ClusterServers) Rejoin(node *Server) {
	c.t.Helper()
	node.Start()
	Eventually(c.t, startTimeout, func() bool {
		for _, n := range c.Nodes {
			if !n.p.joined() {
				return false
			}
		}
		return true
	}, "the cluster is whole again with "+node.Addr())
}
