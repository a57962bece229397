//go:build !linux

package timed

import "time"

// processes sees nothing here: what is left is the test's own clock.
type processes struct{}

func (*processes) look() (own, other time.Duration, whose string) { return 0, 0, "" }
