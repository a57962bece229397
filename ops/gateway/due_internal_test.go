package gateway

import (
	"sync/atomic"
	"testing"
	"time"
)

// TestWarningsAfterTheClockWasSetBack: a wrong configuration of the proxy was not told until the clock had caught up.
func TestWarningsAfterTheClockWasSetBack(t *testing.T) {
	var at atomic.Int64
	at.Store(time.Now().Add(24 * time.Hour).Unix())
	if !isDue(&at) {
		t.Error("nothing is told for a day")
	}
	if isDue(&at) {
		t.Error("it is told twice in a minute")
	}
}
