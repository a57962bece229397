package redistest

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
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

// join makes the nodes one cluster and waits until it is ready.
func join(procs []*process) error {
	args := []string{"--cluster", "create"}
	for _, p := range procs {
		args = append(args, address(p.port))
	}
	args = append(args, "--cluster-replicas", "1", "--cluster-yes")
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "redis-cli", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("redistest: redis-cli --cluster create: %w\n%s", err, out)
	}
	for _, p := range procs {
		if !poll(startTimeout, p.joined) {
			return fmt.Errorf("redistest: node %s is not ready in its cluster; end of its log:\n%s", address(p.port), p.logTail())
		}
	}
	return nil
}

// joined reports whether the node takes part in a complete and healthy cluster.
func (p *process) joined() bool {
	if !p.clusterInfo("cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:6") {
		return false
	}
	ctx, cancel := shortContext()
	defer cancel()
	slots, err := p.admin.ClusterSlots(ctx).Result() //nolint:staticcheck // it is what cluster clients ask
	if err != nil || len(slots) != clusterNodes/2 {
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
