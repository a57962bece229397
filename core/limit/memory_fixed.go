package limit

import "github.com/gatehouse-go/gatehouse/core"

// fixedCount is a fixed window as lua/limit/fixed_window.lua keeps it: its end, and the units that were taken
// in it.
type fixedCount struct{ over, taken int64 }

func newFixedCount() counter { return new(fixedCount) }

// align lets a window that would begin in the future begin now: the clock was set back.
func (c *fixedCount) align(of []Limit, now int64) {
	c.over = min(c.over, now+of[0].Window.Microseconds())
}

// at returns the window that is open at now, or the one that would begin.
func (c *fixedCount) at(l Limit, now int64) fixedCount {
	if c.over <= now {
		return fixedCount{over: now + l.Window.Microseconds()}
	}
	return *c
}

func (c *fixedCount) look(l Limit, now, _ int64) (left, wait int64) {
	current := c.at(l, now)
	return l.Max - current.taken, current.over - now
}

func (c *fixedCount) take(of []Limit, now, units int64, _ bool) {
	*c = c.at(of[0], now)
	c.taken = min(c.taken+units, core.MaxAmount)
}

func (c *fixedCount) giveBack(of []Limit, now, stamp, units int64) {
	begun := c.over - of[0].Window.Microseconds()
	if begun > stamp || stamp >= c.over || now >= c.over {
		return // the attempt's window has ended or its clock was set back, and this one is another
	}
	c.over = min(c.over, now+of[0].Window.Microseconds()) // a window of the future begins now
	if c.taken -= min(units, c.taken); c.taken == 0 {
		*c = fixedCount{}
	}
}

func (c *fixedCount) full(Limit) int64 { return c.over }

func (c *fixedCount) seed(l Limit, now, left, _, resets int64) {
	*c = fixedCount{over: now + resets, taken: l.Max - left}
}
