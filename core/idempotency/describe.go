package idempotency

import (
	"context"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
)

// Describe implements [kit.Describer].
func (g *Guard) Describe() kit.Description {
	operation := []kit.Field{{Name: "actor", Required: true}, {Name: "resource"}, {Name: "id", Required: true}}
	return kit.Description{
		Kind: "idempotency",
		Answers: append(
			kit.StandardAnswers(core.ReasonConflict, core.ReasonGone, core.ReasonInProgress, core.ReasonQuota,
				core.ReasonNotReady),
			kit.Answer{ // for operations without an answer to replay
				Reason: core.ReasonDone, Status: 409, Title: "Already Done", Expected: true,
				PageTitle: "Already done", PageDetail: "This was done before. Nothing was done twice.",
				Detail: "This request was already completed.",
				Type:   "https://github.com/gatehouse-go/gatehouse/blob/main/docs/guides/answers.md#done",
			},
		),
		Operations: []kit.Operation{
			{
				Name: "reset", Changes: true, Fields: operation,
				Run: func(ctx context.Context, in kit.Input) (any, error) {
					return nil, g.Reset(ctx, in.Attempt())
				},
			},
		},
		Ops: []string{"check", "settle", "reset"},
	}
}
