package redistest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
)

const clusterNodes = 6 // three masters with a replica each

// launchCluster starts the nodes below dir and joins them to a cluster that is
// ready: every node knows all slots, every replica is linked. A master that is
// silent for 2 s is failed over.
func launchCluster(dir string) (procs []*process, err error) {
	for range 3 {
		if procs, err = launchNodes(dir); err == nil {
			err = join(procs)
		}
		if err == nil {
			return procs, nil
		}
		for _, p := range procs {
			p.close()
		}
	}
	return nil, err
}

func launchNodes(dir string) ([]*process, error) {
	procs := make([]*process, clusterNodes)
	errs := make([]error, clusterNodes)
	var wg sync.WaitGroup
	for i := range procs {
		wg.Go(func() {
			procs[i], errs[i] = launch(dir, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
		})
	}
	wg.Wait()
	var started []*process
	for _, p := range procs {
		if p != nil {
			started = append(started, p)
		}
	}
	return started, errors.Join(errs...)
}

// join makes the nodes one cluster, the first three its masters, and waits until it is ready. It does what
// "redis-cli --cluster create" does, without its pauses of a second each.
func join(procs []*process) error {
	const masters = clusterNodes / 2
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for i, p := range procs[:masters] {
		err := errors.Join(
			p.admin.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(),
			p.admin.ClusterAddSlotsRange(ctx, i*16384/masters, (i+1)*16384/masters-1).Err())
		if err != nil {
			return fmt.Errorf("redistest: the slots of node %s: %w", address(p.port), err)
		}
	}
	for i, p := range procs {
		for _, other := range procs[:i] { // each pair once: gossip would take another second
			if err := p.admin.ClusterMeet(ctx, "127.0.0.1", strconv.Itoa(other.port)).Err(); err != nil {
				return fmt.Errorf("redistest: CLUSTER MEET of %s and %s: %w", address(p.port), address(other.port), err)
			}
		}
	}
	for i, p := range procs[masters:] {
		if err := p.replicate(ctx, procs[i]); err != nil {
			return fmt.Errorf("redistest: node %s is not a replica of %s: %w", address(p.port), address(procs[i].port),
				err)
		}
	}
	for _, p := range procs {
		if !poll(startTimeout, p.joined) {
			return fmt.Errorf("redistest: node %s is not ready in its cluster; end of its log:\n%s", address(p.port),
				p.logTail())
		}
	}
	return nil
}

// replicate makes the node a replica of the master as soon as it knows it.
func (p *process) replicate(ctx context.Context, master *process) error {
	id, err := master.admin.Do(ctx, "CLUSTER", "MYID").Text()
	if err != nil {
		return err
	}
	poll(startTimeout, func() bool {
		err = p.admin.ClusterReplicate(ctx, id).Err()
		return err == nil || ctx.Err() != nil
	})
	return err
}

// joined reports whether the node takes part in a complete and healthy cluster.
func (p *process) joined() bool {
	if !p.clusterInfo("cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:6") {
		return false
	}
	ctx, cancel := shortContext()
	defer cancel()
	slots, err := p.admin.ClusterSlots(ctx).Result() //nolint:staticcheck // it is what cluster clients ask
	// There are more ranges where slots have moved.
	if err != nil || len(slots) < clusterNodes/2 {
		return false
	}
	for _, s := range slots {
		if len(s.Nodes) != 2 {
			return false
		}
	}
	return p.replication("role:master", "connected_slaves:1") ||
		p.replication("role:slave", "master_link_status:up")
}

// clusterInfo reports whether CLUSTER INFO has all of the lines.
func (p *process) clusterInfo(lines ...string) bool {
	ctx, cancel := shortContext()
	defer cancel()
	text, err := p.admin.ClusterInfo(ctx).Result()
	return err == nil && hasLines("\n"+text, lines...)
}
