// Package saleops describes guards of sales, those of one slot and those of several buckets: how their
// refusals are answered, and what an operator can do with them.
package saleops

import (
	"context"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
)

// Guard is a guard of sales with a status S and a verification V.
type Guard[S, V any] interface {
	Verify(ctx context.Context, item string) (V, error)
	Repair(ctx context.Context, item string) ([]string, error)
	Restock(ctx context.Context, item, id string, units int64) (S, error)
	Sweep(ctx context.Context, item string) (int, error)
	Close(ctx context.Context, item string) error
}

// Describe describes a guard of sales. status returns what an operator sees of an item's sale, and more are
// ops that not all such guards have.
func Describe[S, V any](
	g Guard[S, V], status func(ctx context.Context, item string) (any, error), more ...string,
) kit.Description {
	item := kit.Field{Name: "item", Required: true, Hint: "the item on sale, as the rule's What has it"}
	delivery := []kit.Field{item,
		{Name: "id", Required: true, Hint: "of this delivery, such as delivery-1: the same one counts once"},
		{Name: "units", Kind: kit.FieldNumber, Required: true, Hint: "such as 10, or -10 to take some away"}}
	return kit.Description{
		Kind: "sale",
		Answers: append(
			kit.StandardAnswers(core.ReasonDuplicate, core.ReasonClosed, core.ReasonConflict, core.ReasonGone,
				core.ReasonNotReady,
				core.ReasonUnconfirmed, core.ReasonInProgress),
			kit.Answer{
				Reason: core.ReasonEarly, Status: 429, Title: "Not Begun",
				PageTitle: "Not begun", PageDetail: "The sale has not begun yet.",
				Detail: "The sale has not begun yet.",
				Type:   "https://github.com/gatehouse-go/gatehouse/blob/main/docs/guides/answers.md#early",
			},
			kit.Answer{
				Reason: core.ReasonSoldOut, Status: 409, Title: "Sold Out",
				PageTitle: "Sold out", PageDetail: "Everything is sold or reserved at the moment.",
				Detail: "Sold out.",
				Type:   "https://github.com/gatehouse-go/gatehouse/blob/main/docs/guides/answers.md#sold_out",
			},
		),
		Operations: []kit.Operation{
			{Name: "status", Fields: []kit.Field{item}, Run: func(ctx context.Context, in kit.Input) (any, error) {
				return status(ctx, in.Text("item"))
			}},
			{
				Name: "verify", Fields: []kit.Field{item},
				Run: func(ctx context.Context, in kit.Input) (any, error) {
					return g.Verify(ctx, in.Text("item"))
				},
			},
			{
				Name: "repair", Changes: true, Reversible: true, Fields: []kit.Field{item},
				Run: func(ctx context.Context, in kit.Input) (any, error) {
					restored, err := g.Repair(ctx, in.Text("item"))
					return map[string][]string{"restored": restored}, err
				},
			},
			{
				Name: "restock", Changes: true, Reversible: true, Fields: delivery,
				Run: func(ctx context.Context, in kit.Input) (any, error) {
					return g.Restock(ctx, in.Text("item"), in.Text("id"), in.Number("units"))
				},
			},
			{
				Name: "sweep", Changes: true, Reversible: true, Fields: []kit.Field{item},
				Run: func(ctx context.Context, in kit.Input) (any, error) {
					n, err := g.Sweep(ctx, in.Text("item"))
					return map[string]int{"swept": n}, err
				},
			},
			{
				Name: "close", Changes: true, Fields: []kit.Field{item},
				Run: func(ctx context.Context, in kit.Input) (any, error) {
					return nil, g.Close(ctx, in.Text("item"))
				},
			},
		},
		Ops: append([]string{
			"check", "settle", "open", "confirm", "cancel", "sweep", "status", "restock", "close", "verify", "repair",
			"discard", "events",
		}, more...),
	}
}
