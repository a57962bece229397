package votes

import (
	"context"
	"fmt"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
)

// Polls is what operators can do with polls.
type Polls interface {
	Tally(ctx context.Context, poll string) (map[string]int64, error)
	Top(ctx context.Context, poll string, n int) ([]Rank, error)
	Verify(ctx context.Context, poll string) (Verification, error)
	Repair(ctx context.Context, poll string) (Verification, error)
	Void(ctx context.Context, poll string, options VoidOptions) (VoidResult, error)
}

// Describe implements [kit.Describer].
func (g *Guard) Describe() kit.Description { return Describe(g) }

// Describe describes a guard of polls for [kit.Describer].
func Describe(g Polls) kit.Description {
	poll := kit.Field{Name: "poll", Required: true, Hint: "the name of the poll, such as final"}
	choices := kit.Field{Name: "choices", Kind: kit.FieldNumber, Required: true, Hint: "how many, such as 10"}
	some := []kit.Field{poll, {Name: "voter", Hint: "as the rule's Who has it"},
		{Name: "origin", Hint: "as the rule's Origin has it, such as 203.0.113.7"}}
	return kit.Description{
		Kind: "votes",
		Answers: kit.StandardAnswers(core.ReasonDuplicate, core.ReasonQuota, core.ReasonNotOpen, core.ReasonClosed,
			core.ReasonConflict, core.ReasonGone, core.ReasonInProgress, core.ReasonDayRolled),
		Operations: []kit.Operation{
			{Name: "tally", Fields: []kit.Field{poll}, Run: func(ctx context.Context, in kit.Input) (any, error) {
				return g.Tally(ctx, in.Text("poll"))
			}},
			{
				Name: "top", Fields: []kit.Field{poll, choices},
				Run: func(ctx context.Context, in kit.Input) (any, error) {
					return g.Top(ctx, in.Text("poll"), int(in.Number("choices")))
				},
			},
			{Name: "verify", Fields: []kit.Field{poll}, Run: func(ctx context.Context, in kit.Input) (any, error) {
				return g.Verify(ctx, in.Text("poll"))
			}},
			{Name: "find-votes", Fields: some, Run: func(ctx context.Context, in kit.Input) (any, error) {
				return voidSome(ctx, g, in, true)
			}},
			{
				Name: "void-votes", Changes: true, Fields: some,
				Run: func(ctx context.Context, in kit.Input) (any, error) {
					return voidSome(ctx, g, in, false)
				},
			},
			{
				Name: "repair", Changes: true, Reversible: true, Fields: []kit.Field{poll},
				Run: func(ctx context.Context, in kit.Input) (any, error) {
					return g.Repair(ctx, in.Text("poll"))
				},
			},
		},
		Ops: []string{"check", "settle", "retract", "tally", "verify", "repair", "audit", "void"},
	}
}

// voidSome voids the votes of a voter, the votes from an origin or, with both, the voter's votes from that
// origin. Their voters cannot vote again. A dry run only counts.
func voidSome(ctx context.Context, g Polls, in kit.Input, dry bool) (any, error) {
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

// Details implements the interface that kit.DetailsOf looks for: a voter who tries again reads their votes
// that stand.
func (b *ballot) Details() []kit.Detail {
	if len(b.choices) == 0 {
		return nil
	}
	return []kit.Detail{{Name: "choices", Value: b.choices}}
}
