package limit

import "github.com/gatehouse-go/gatehouse/core"

// expects reports whether the attempt will probably be allowed and leave an eighth of the limit, one unit at
// least: by what the process last heard, less the units that it has asked for since and not been answered.
// Of actors of whom it has heard nothing, the whole limit is left. It is true in a shadow, where nobody is
// refused.
func (l *limiter) expects(a *core.Attempt, limits *limitSet, underWay int64) bool {
	if a.Shadow {
		return true
	}
	v := l.local().decide(a, limits.limits, 0, l.micros(present()))
	return v.remaining-underWay-a.Cost >= max(limits.limits[v.binding].Max/8, 1)
}

// always is for endings: each goes out with the next.
func always() bool { return true }
