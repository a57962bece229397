package seckill

import (
	"context"
	"fmt"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
)

// Describe implements kit.Describer.
func (g *Guard) Describe() kit.Description {
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
				return g.shownStatus(ctx, in.Text("item"))
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
		Ops: []string{
			"check", "settle", "open", "confirm", "cancel", "sweep", "status", "restock", "close", "verify", "repair",
			"discard", "events", "outbox",
		},
	}
}

// shownStatus is what an operator sees of a sale: its units, and what it was opened with.
type shownStatus struct {
	Status
	State    string     `json:"state"` // "opens later", "open", "sold out" or "closed"
	Opens    *time.Time `json:"opens,omitempty"`
	Closes   *time.Time `json:"closes,omitempty"`
	PerBuyer int64      `json:"per_buyer"`
	Hold     string     `json:"hold"`
}

// shownStatus reads the status, and says by the clock of this process whether the sale is open.
func (g *Guard) shownStatus(ctx context.Context, item string) (s shownStatus, err error) {
	if s.Status, err = g.Status(ctx, item); err != nil {
		return s, err
	}
	var terms string
	err = g.ofSale(ctx, item, func(at stock) (found bool, err error) {
		terms, found, err = at.terms(ctx)
		return found, err
	})
	if err != nil {
		return s, err
	}
	var opens, closes, hold int64 // in milliseconds
	if _, err = fmt.Sscan(terms, &opens, &closes, &s.PerBuyer, &hold); err != nil {
		return s, fmt.Errorf("status of %.100q: its terms %.100q: %w", item, terms, err)
	}
	s.Hold = (time.Duration(hold) * time.Millisecond).String()
	moment := func(ms int64) *time.Time {
		if ms == 0 {
			return nil
		}
		at := time.UnixMilli(ms).UTC()
		return &at
	}
	s.Opens, s.Closes = moment(opens), moment(closes)
	switch now := g.Engine().Now().UnixMilli(); {
	case closes != 0 && closes <= now:
		s.State = "closed"
	case opens > now:
		s.State = "opens later"
	case s.Left == 0:
		s.State = "sold out"
	default:
		s.State = "open"
	}
	return s, nil
}
