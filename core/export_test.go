package core

import "time"

// LogAgain makes an observer of LogErrors log the next error, no matter when it logged the last one.
func LogAgain(o Observer) { o.(*logErrors).last = time.Time{} }
