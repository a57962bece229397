package leases

import (
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

// The rest is for tests of the guards.

// RenewNow renews all leases of a pool at once, as its timer would.
func (k *Keeper) RenewNow(tag string) {
	k.pools.mu.Lock()
	one := k.pools.byTag[tag]
	k.pools.mu.Unlock()
	if one != nil {
		k.pools.renewAll(one)
	}
}

// Forget makes the process neither renew nor lose a decision's claim, as if it had died.
func (k *Keeper) Forget(d core.Decision) {
	if h, err := k.Claim(d); err == nil {
		k.pools.remove(h)
	}
}

// Pools returns of how many pools the process has holders.
func (k *Keeper) Pools() int {
	k.pools.mu.Lock()
	defer k.pools.mu.Unlock()
	return len(k.pools.byTag)
}

// Queued returns how many attempts of this process stand in the line of a pool in Redis.
func (k *Keeper) Queued(tag string) int {
	k.lines.mu.Lock()
	defer k.lines.mu.Unlock()
	if l := k.lines.byTag[tag]; l != nil {
		return len(l.waiters)
	}
	return 0
}

// Lines returns in how many lines in Redis the process stands.
func (k *Keeper) Lines() int {
	k.lines.mu.Lock()
	defer k.lines.mu.Unlock()
	return len(k.lines.byTag)
}

// Pause sets the longest time between two calls for a line. Call it before anybody waits.
func (k *Keeper) Pause(d time.Duration) { k.lines.pause, k.lines.pauseFirst = d, d }

// Channel returns the name of the channel to which the process listens while it has waiters.
func (k *Keeper) Channel() string { return k.channel(k.lines.process) }

// StopListening ends the listening, if nobody waits.
func (k *Keeper) StopListening() { k.lines.unheard() }

// Batch is how many waiters one call gives claims to.
const Batch = batch

// Chunk is how many holders one call renews.
const Chunk = chunk

// AcquireScript takes permits.
var AcquireScript = acquireScript

// WaitScript makes the calls for a line.
var WaitScript = waitScript
