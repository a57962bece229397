// Package perip makes the guard of each adapter's PerIP.
package perip

import (
	"fmt"
	"strings"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
)

// remedy is what to write in place of a second PerIP.
const remedy = `: keep what PerIP returns in a variable, or write a rule for the other routes: ` +
	`ratelimit.Rule{Guard: limit.NewSlidingWindow(gate, "login", limit.PerMinute(5)), Who: keyfuncs.IP()}`

// New returns a limit named "per-ip". It panics with what to write if the engine has one.
func New(gate *core.Engine, at limit.Limit) *limit.SlidingWindow {
	defer func() {
		mistake := recover()
		if mistake == nil {
			return
		}
		if text := fmt.Sprint(mistake); strings.Contains(text, "two guards are named") {
			panic(text + remedy)
		}
		panic(mistake)
	}()
	return limit.NewSlidingWindow(gate, "per-ip", at)
}
