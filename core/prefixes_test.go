package core_test

import (
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestApplicationsOnOneRedisNeedPrefixes: two applications with the same prefix and the same names of guards
// share their limits and polls, although their rules differ. With prefixes of their own they share nothing.
func TestApplicationsOnOneRedisNeedPrefixes(t *testing.T) {
	b := redistest.Single(t)
	ann := core.Attempt{Actor: "ann", Resource: "final", Item: "red"}
	for _, row := range []struct {
		name, shop, blog string // the prefixes
		limited, voted   core.Reason
	}{
		{"the same prefix", b.Prefix, b.Prefix, core.ReasonLimited, core.ReasonDuplicate},
		{"prefixes of their own", b.Prefix + "shop", b.Prefix + "blog", core.ReasonOK, core.ReasonOK},
	} {
		t.Run(row.name, func(t *testing.T) {
			shop := guardtest.NewEngine(b, core.WithPrefix(row.shop))
			blog := guardtest.NewEngine(b, core.WithPrefix(row.blog))
			buyers := limit.NewSlidingWindow(shop, "site", limit.PerHour(1))
			readers := limit.NewSlidingWindow(blog, "site", limit.PerHour(1))
			guardtest.WantReason(t, guardtest.Check(t, buyers, ann), core.ReasonOK)
			guardtest.WantReason(t, guardtest.Check(t, readers, ann), row.limited)

			tastes, topics := votes.New(shop, "poll", votes.Options{}), votes.New(blog, "poll", votes.Options{})
			guardtest.WantReason(t, guardtest.Check(t, tastes, ann), core.ReasonOK)
			guardtest.WantReason(t, guardtest.Check(t, topics, ann), row.voted)
		})
	}
}
