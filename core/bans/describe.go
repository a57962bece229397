package bans

import (
	"context"

	"github.com/gatehouse-go/gatehouse/core"
)

// Describe implements core.Describer.
func (g *Guard) Describe() core.Description {
	actor := core.Field{Name: "actor", Required: true}
	length := core.Field{Name: "length", Kind: core.FieldDuration, Required: true,
		Hint: "how long, such as 90m or 24h"}
	return core.Description{
		Kind: "bans",
		Settings: []core.Detail{
			{Name: "refusals", Value: g.options.Refusals}, {Name: "in", Value: g.options.Period.String()},
			{Name: "first", Value: g.options.First.String()}, {Name: "longest", Value: g.options.Longest.String()},
		},
		Answers: []core.Answer{{
			Reason: core.ReasonBanned, Status: 429,
			Title:  "Abnormal Usage Detected", // from the draft that defines the problem type
			Detail: "Too many requests were refused. Wait before you try again.", Type: core.TypeAbnormalUsage,
			PageTitle: "Too many attempts", PageDetail: "Too many of your requests were refused, so none are " +
				"accepted for a while.",
		}},
		Operations: []core.Operation{
			{Name: "status", Fields: []core.Field{actor}, Run: func(ctx context.Context, in core.Input) (any, error) {
				s, err := g.Status(ctx, in.Attempt())
				return map[string]any{"banned_for": s.Left.String(), "level": s.Level, "strikes": s.Strikes}, err
			}},
			{
				Name: "ban", Changes: true, Reversible: true, Fields: []core.Field{actor, length},
				Run: func(ctx context.Context, in core.Input) (any, error) {
					return nil, g.Ban(ctx, in.Attempt(), in.Duration("length"))
				},
			},
			{
				Name: "unban", Changes: true, Reversible: true, Fields: []core.Field{actor},
				Run: func(ctx context.Context, in core.Input) (any, error) {
					return nil, g.Unban(ctx, in.Attempt())
				},
			},
		},
		Ops: []string{"check", "strike", "ban", "unban", "status"},
	}
}
