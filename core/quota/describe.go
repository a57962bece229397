package quota

import (
	"context"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
)

// Describe implements [kit.Describer].
func (g *Guard) Describe() kit.Description {
	key := []kit.Field{{Name: "actor", Required: true}, {Name: "resource"}}
	return kit.Description{
		Kind:     "quota",
		Settings: []kit.Detail{{Name: "items", Value: g.options.Items}},
		Answers: kit.StandardAnswers(core.ReasonQuota, core.ReasonConflict, core.ReasonGone,
			core.ReasonDayRolled),
		Operations: []kit.Operation{
			{Name: "used", Fields: key, Run: func(ctx context.Context, in kit.Input) (any, error) {
				items, left, err := g.Used(ctx, in.Attempt())
				return map[string]any{"items": items, "remaining": left}, err
			}},
			{Name: "reset", Changes: true, Fields: key, Run: func(ctx context.Context, in kit.Input) (any, error) {
				return nil, g.Reset(ctx, in.Attempt())
			}},
		},
		Ops: []string{"check", "settle", "used", "reset"},
	}
}
