package examples_test

import (
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

func TestASecondVoteIsADuplicate(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := votes.New(guardtest.NewEngine(b), "poll", votes.Options{})
		a := core.Attempt{Actor: "ann", Resource: "final", Item: "red"}
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonDuplicate)
	})
}
