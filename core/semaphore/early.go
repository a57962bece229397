package semaphore

import "github.com/gatehouse-go/gatehouse/core"

// poolsHeard is of how many pools a guard remembers what it last heard: of those that were asked for last.
const poolsHeard = 4096

// early reports whether the guard may be asked before the guards in front have answered. One that waits may
// not: its attempts would keep a place in line for a request that is refused. Without Redis there is no round
// trip to share.
func (g *Guard) early() bool { return g.options.Wait == 0 && g.Engine().SharesCalls() }

// expects reports whether the attempt will probably get its permits and leave an eighth of the pool, one
// permit at least: by what the process last heard, less the permits that it has asked for since and not been
// answered. Of pools of which it has heard nothing, all are free. It is true in a shadow, where nobody is
// refused.
func (g *Guard) expects(a core.Attempt, tag string, most, underWay int64) bool {
	if a.Shadow {
		return true
	}
	free := most
	part := g.heard.Of(tag)
	part.Lock()
	defer part.Unlock()
	if left, known := part.Get(tag); known {
		free = min(left, most)
	}
	return free-underWay-a.Cost >= max(most/8, 1)
}

// hear notes how many permits of a pool are free, by an answer of Redis.
func (g *Guard) hear(d *core.Decision) {
	if d.Source != core.SourceRedis || !g.early() {
		return
	}
	tag := tagOf(d.Attempt)
	part := g.heard.Of(tag)
	part.Lock()
	defer part.Unlock()
	part.Add(tag, d.Remaining)
}

// gaveBack notes that permits of a pool are free again.
func (g *Guard) gaveBack(d *core.Decision) {
	if d.Source != core.SourceRedis || !g.early() {
		return
	}
	tag := tagOf(d.Attempt)
	part := g.heard.Of(tag)
	part.Lock()
	defer part.Unlock()
	if left, known := part.Get(tag); known {
		part.Add(tag, left+d.Attempt.Cost)
	}
}
