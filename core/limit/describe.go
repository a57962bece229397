package limit

import (
	"context"

	"github.com/gatehouse-go/gatehouse/core"
)

// Describe implements core.Describer.
func (l *limiter) Describe() core.Description {
	key := []core.Field{{Name: "actor", Required: true}, {Name: "resource"}}
	return core.Description{
		Kind:    "limit",
		Answers: core.StandardAnswers(core.ReasonLimited, core.ReasonOverLimit),
		Operations: []core.Operation{
			{Name: "peek", Fields: key, Run: func(ctx context.Context, in core.Input) (any, error) {
				return l.Peek(ctx, in.Attempt())
			}},
			{Name: "reset", Changes: true, Fields: key, Run: func(ctx context.Context, in core.Input) (any, error) {
				return nil, l.Reset(ctx, in.Attempt())
			}},
		},
		Ops: []string{"check", "check_local", "settle", "refund", "spend", "peek", "reset", "windows", "give_back"},
	}
}
