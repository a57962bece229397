package seckill

import (
	"context"

	"github.com/gatehouse-go/gatehouse/core"
)

// Describe implements core.Describer.
func (g *Guard) Describe() core.Description {
	item := core.Field{Name: "item", Required: true}
	delivery := []core.Field{item, {Name: "id", Required: true},
		{Name: "units", Kind: core.FieldNumber, Required: true}}
	return core.Description{
		Kind: "sale",
		Answers: append(
			core.StandardAnswers(core.ReasonDuplicate, core.ReasonClosed, core.ReasonConflict, core.ReasonGone,
				core.ReasonNotReady,
				core.ReasonUnconfirmed, core.ReasonInProgress),
			core.Answer{
				Reason: core.ReasonEarly, Status: 429, Title: "Not Begun",
				PageTitle: "Not begun", PageDetail: "The sale has not begun yet.",
				Detail: "The sale has not begun yet.",
				Type:   "https://github.com/gatehouse-go/gatehouse/blob/main/docs/guides/answers.md#early",
			},
			core.Answer{
				Reason: core.ReasonSoldOut, Status: 409, Title: "Sold Out",
				PageTitle: "Sold out", PageDetail: "Everything is sold or reserved at the moment.",
				Detail: "Sold out.",
				Type:   "https://github.com/gatehouse-go/gatehouse/blob/main/docs/guides/answers.md#sold_out",
			},
		),
		Operations: []core.Operation{
			{Name: "status", Fields: []core.Field{item}, Run: func(ctx context.Context, in core.Input) (any, error) {
				return g.Status(ctx, in.Text("item"))
			}},
			{
				Name: "verify", Fields: []core.Field{item},
				Run: func(ctx context.Context, in core.Input) (any, error) {
					return g.Verify(ctx, in.Text("item"))
				},
			},
			{
				Name: "repair", Changes: true, Fields: []core.Field{item},
				Run: func(ctx context.Context, in core.Input) (any, error) {
					restored, err := g.Repair(ctx, in.Text("item"))
					return map[string][]string{"restored": restored}, err
				},
			},
			{
				Name: "restock", Changes: true, Fields: delivery,
				Run: func(ctx context.Context, in core.Input) (any, error) {
					return g.Restock(ctx, in.Text("item"), in.Text("id"), in.Number("units"))
				},
			},
			{
				Name: "sweep", Changes: true, Fields: []core.Field{item},
				Run: func(ctx context.Context, in core.Input) (any, error) {
					n, err := g.Sweep(ctx, in.Text("item"))
					return map[string]int{"swept": n}, err
				},
			},
			{
				Name: "close", Changes: true, Fields: []core.Field{item},
				Run: func(ctx context.Context, in core.Input) (any, error) {
					return nil, g.Close(ctx, in.Text("item"))
				},
			},
		},
		Ops: []string{
			"check", "settle", "open", "confirm", "cancel", "sweep", "status", "restock", "close", "verify", "repair",
			"discard", "events", "outbox",
		},
	}
}
