package kit_test

import (
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/core/quota"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestAReleasedNameIsFree: a guard with other options goes on with the keys of the former one, which still
// settles what it allowed.
func TestAReleasedNameIsFree(t *testing.T) {
	gate := guardtest.NewEngine(redistest.Mini(t))
	daily := func(items int) *quota.Guard {
		return quota.New(gate, "articles", quota.Options{Items: items, Period: period.Every(240 * time.Hour)})
	}
	former := daily(1)
	a, b := core.Attempt{Actor: "ann", Item: "a"}, core.Attempt{Actor: "ann", Item: "b"}
	first := guardtest.Check(t, former, a)
	guardtest.WantPanic(t, "two guards are named", func() { daily(2) })
	gate.Release("articles")
	gate.Release("unknown")
	second := daily(2)
	guardtest.WantPanic(t, "two guards are named", func() { daily(3) })
	guardtest.WantReason(t, guardtest.Check(t, second, b), core.ReasonOK)
	guardtest.WantReason(t, guardtest.Check(t, second, core.Attempt{Actor: "ann", Item: "c"}), core.ReasonQuota)
	guardtest.Settle(t, former, first, core.Rollback)
	guardtest.WantReason(t, guardtest.Check(t, second, core.Attempt{Actor: "ann", Item: "c"}), core.ReasonOK)
}
