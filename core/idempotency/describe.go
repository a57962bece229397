package idempotency

import (
	"context"

	"github.com/gatehouse-go/gatehouse/core"
)

// Describe implements [core.Describer].
func (g *Guard) Describe() core.Description {
	operation := []core.Field{{Name: "actor", Required: true}, {Name: "resource"}, {Name: "id", Required: true}}
	return core.Description{
		Kind: "idempotency",
		Answers: append(
			core.StandardAnswers(core.ReasonConflict, core.ReasonGone, core.ReasonInProgress),
			core.Answer{ // for operations without an answer to replay
				Reason: core.ReasonDone, Status: 409, Title: "Already Done", Expected: true,
				PageTitle: "Already done", PageDetail: "This was done before. Nothing was done twice.",
				Detail: "This request was already completed.",
				Type:   "https://github.com/gatehouse-go/gatehouse/blob/main/docs/guides/answers.md#done",
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
