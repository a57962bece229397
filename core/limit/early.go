package limit

import "github.com/gatehouse-go/gatehouse/core"

// expects reports whether the attempt will probably be allowed and leave an eighth of the limit, one unit at
// least, by what the process last heard. It is true for actors of whom the process has heard nothing, and in
// a shadow, where nobody is refused.
func (l *limiter) expects(a core.Attempt, limits *limitSet) bool {
	if a.Shadow {
		return true
	}
	v := l.local().decide(&a, limits.limits, 0, l.micros(present()))
	return v.remaining-a.Cost >= max(limits.limits[v.binding].Max/8, 1)
}

// always is for endings: each goes out with the next.
func always() bool { return true }
