package idempotency

import (
	"context"

	"github.com/gatehouse-go/gatehouse/core"
)

// Describe implements core.Describer.
func (g *Guard) Describe() core.Description {
	operation := []core.Field{{Name: "actor", Required: true}, {Name: "resource"}, {Name: "id", Required: true}}
	return core.Description{
		Kind: "idempotency",
		Answers: append(
			core.StandardAnswers(core.ReasonConflict, core.ReasonGone),
			core.Answer{
				Reason: core.ReasonInProgress, Status: 409, Title: "In Progress", Expected: true,
				Detail: "The same request is being worked on. Ask again in a moment.",
				Type:   "https://github.com/gatehouse-go/gatehouse#in_progress",
			},
			core.Answer{ // where there is no answer that could be given again
				Reason: core.ReasonDone, Status: 409, Title: "Already Done", Expected: true,
				Detail: "This has been done before.", Type: "https://github.com/gatehouse-go/gatehouse#done",
			},
		),
		Operations: []core.Operation{
			{
				Name: "reset", Changes: true, Fields: operation,
				Run: func(ctx context.Context, in core.Input) (any, error) {
					return nil, g.Reset(ctx, in.Attempt())
				},
			},
		},
		Ops: []string{"check", "settle", "reset"},
	}
}
