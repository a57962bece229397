package quota

import (
	"context"

	"github.com/gatehouse-go/gatehouse/core"
)

// Describe implements [core.Describer].
func (g *Guard) Describe() core.Description {
	key := []core.Field{{Name: "actor", Required: true}, {Name: "resource"}}
	return core.Description{
		Kind:     "quota",
		Settings: []core.Detail{{Name: "items", Value: g.options.Items}},
		Answers: core.StandardAnswers(core.ReasonQuota, core.ReasonConflict, core.ReasonGone,
			core.ReasonDayRolled),
		Operations: []core.Operation{
			{Name: "used", Fields: key, Run: func(ctx context.Context, in core.Input) (any, error) {
				items, left, err := g.Used(ctx, in.Attempt())
				return map[string]any{"items": items, "remaining": left}, err
			}},
			{Name: "reset", Changes: true, Fields: key, Run: func(ctx context.Context, in core.Input) (any, error) {
				return nil, g.Reset(ctx, in.Attempt())
			}},
		},
		Ops: []string{"check", "settle", "used", "reset"},
	}
}
