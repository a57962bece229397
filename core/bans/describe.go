package bans

import (
	"context"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
)

// Describe implements kit.Describer.
func (g *Guard) Describe() kit.Description {
	actor := kit.Field{Name: "actor", Required: true}
	length := kit.Field{Name: "length", Kind: kit.FieldDuration, Required: true,
		Hint: "how long, such as 90m or 24h"}
	return kit.Description{
		Kind: "bans",
		Settings: []kit.Detail{
			{Name: "refusals", Value: g.options.Refusals}, {Name: "in", Value: g.options.Period.String()},
			{Name: "first", Value: g.options.First.String()}, {Name: "longest", Value: g.options.Longest.String()},
		},
		Answers: []kit.Answer{{
			Reason: core.ReasonBanned, Status: 429,
			Title:  "Abnormal Usage Detected", // from the draft that defines the problem type
			Detail: "Too many requests were refused. Wait before you try again.", Type: kit.TypeAbnormalUsage,
			PageTitle: "Too many attempts", PageDetail: "Too many of your requests were refused, so none are " +
				"accepted for a while.",
		}},
		Operations: []kit.Operation{
			{Name: "status", Fields: []kit.Field{actor}, Run: func(ctx context.Context, in kit.Input) (any, error) {
				s, err := g.Status(ctx, in.Attempt())
				return map[string]any{"banned_for": kit.TextOf(s.Left), "level": s.Level, "strikes": s.Strikes}, err
			}},
			{
				Name: "ban", Changes: true, Reversible: true, Fields: []kit.Field{actor, length},
				Run: func(ctx context.Context, in kit.Input) (any, error) {
					return nil, g.Ban(ctx, in.Attempt(), in.Duration("length"))
				},
			},
			{
				Name: "unban", Changes: true, Reversible: true, Fields: []kit.Field{actor},
				Run: func(ctx context.Context, in kit.Input) (any, error) {
					return nil, g.Unban(ctx, in.Attempt())
				},
			},
		},
		Ops: []string{"check", "strike", "ban", "unban", "status"},
	}
}
