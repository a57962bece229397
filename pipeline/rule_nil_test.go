package pipeline_test

import (
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// TestVariablesThatWereNeverSetAreFoundAtSetUp: an interface that holds a nil pointer is not nil, so a rule
// with a *bans.Guard that nobody has made would panic in the first request.
func TestVariablesThatWereNeverSetAreFoundAtSetUp(t *testing.T) {
	var (
		noBans  *bans.Guard
		noGuard *limit.SlidingWindow
	)
	window := limit.NewSlidingWindow(core.NewMemory(), "w", limit.PerHour(5))
	for remedy, rule := range map[string]pipeline.Rule{
		"make them with bans.New": {Guard: window, Who: keyfuncs.IP(), Bans: noBans},
		"has no Guard":            {Guard: noGuard, Who: keyfuncs.IP()},
	} {
		guardtest.WantPanic(t, remedy, func() { pipeline.New(rule) })
	}
}
