package votes

import (
	"context"
	"fmt"

	"github.com/gatehouse-go/gatehouse/core"
)

// Describe implements [core.Describer].
func (g *Guard) Describe() core.Description {
	poll := core.Field{Name: "poll", Required: true, Hint: "the name of the poll, such as final"}
	choices := core.Field{Name: "choices", Kind: core.FieldNumber, Required: true, Hint: "how many, such as 10"}
	some := []core.Field{poll, {Name: "voter", Hint: "as the rule's Who has it"},
		{Name: "origin", Hint: "as the rule's Origin has it, such as 203.0.113.7"}}
	return core.Description{
		Kind: "votes",
		Answers: core.StandardAnswers(core.ReasonDuplicate, core.ReasonQuota, core.ReasonNotOpen, core.ReasonClosed,
			core.ReasonConflict, core.ReasonGone, core.ReasonInProgress, core.ReasonDayRolled),
		Operations: []core.Operation{
			{Name: "tally", Fields: []core.Field{poll}, Run: func(ctx context.Context, in core.Input) (any, error) {
				return g.Tally(ctx, in.Text("poll"))
			}},
			{
				Name: "top", Fields: []core.Field{poll, choices},
				Run: func(ctx context.Context, in core.Input) (any, error) {
					return g.Top(ctx, in.Text("poll"), int(in.Number("choices")))
				},
			},
			{Name: "verify", Fields: []core.Field{poll}, Run: func(ctx context.Context, in core.Input) (any, error) {
				return g.Verify(ctx, in.Text("poll"))
			}},
			{Name: "find-votes", Fields: some, Run: func(ctx context.Context, in core.Input) (any, error) {
				return g.voidSome(ctx, in, true)
			}},
			{
				Name: "void-votes", Changes: true, Fields: some,
				Run: func(ctx context.Context, in core.Input) (any, error) {
					return g.voidSome(ctx, in, false)
				},
			},
			{
				Name: "repair", Changes: true, Reversible: true, Fields: []core.Field{poll},
				Run: func(ctx context.Context, in core.Input) (any, error) {
					return g.Repair(ctx, in.Text("poll"))
				},
			},
		},
		Ops: []string{"check", "settle", "retract", "tally", "verify", "repair", "audit", "void"},
	}
}

// voidSome voids the votes of a voter, the votes from an origin or, with both, the voter's votes from that
// origin. Their voters cannot vote again. A dry run only counts.
func (g *Guard) voidSome(ctx context.Context, in core.Input, dry bool) (any, error) {
	voter, origin := in.Text("voter"), in.Text("origin")
	if voter == "" && origin == "" {
		return nil, fmt.Errorf("%w: name a voter or an origin; without either, this would void all votes of the "+
			"poll", core.ErrInvalid)
	}
	return g.Void(ctx, in.Text("poll"), VoidOptions{
		Match: func(e Event) bool {
			return (voter == "" || e.Voter == voter) && (origin == "" || e.Origin == origin)
		},
		DryRun: dry,
	})
}

// Details implements the interface that core.DetailsOf looks for: a voter who tries again reads their votes
// that stand.
func (b *ballot) Details() []core.Detail {
	if len(b.choices) == 0 {
		return nil
	}
	return []core.Detail{{Name: "choices", Value: b.choices}}
}
