package core

// logKeys are the keys of a limiter whose limits are always the same.
func (l *limiter) logKeys(a Attempt) []string { return l.keysOf(l.limits, a) }
