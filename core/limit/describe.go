package limit

import (
	"cmp"
	"context"
	"strings"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
)

// Tier is a named set of limits, for operators: see [SlidingWindow.Tiers].
type Tier struct {
	// Name is the Item of attempts of the tier. It is empty where all attempts have the same limits.
	Name string
	// Limits are the limits of the tier. Without any, it is unlimited.
	Limits []Limit
}

// Tiers makes a guard with a [Func] show its limits to operators, and offer the tiers where it is asked about
// an actor. The function is called for each page. Call Tiers before the guard is used.
func (l *limiter) Tiers(list func() []Tier) { l.tiers = list }

// Describe implements kit.Describer.
func (l *limiter) Describe() kit.Description {
	tiers := l.tiersNow()
	key := []kit.Field{{Name: "actor", Required: true}, {Name: "resource"}}
	if l.by != nil && !isSame(tiers) { // the function decides by the whole attempt
		item := kit.Field{Name: "item"}
		if len(tiers) > 0 {
			item.Required, item.Hint = true, "the tier of the actor, by which the limits are chosen"
		}
		for _, tier := range tiers {
			item.Choices = append(item.Choices, tier.Name)
		}
		key = append(key, item)
	}
	return kit.Description{
		Kind:     "limit",
		Settings: settings(tiers),
		Answers:  kit.StandardAnswers(core.ReasonLimited, core.ReasonOverLimit),
		Operations: []kit.Operation{
			{Name: "peek", Fields: key, Run: func(ctx context.Context, in kit.Input) (any, error) {
				return l.Peek(ctx, in.Attempt())
			}},
			{Name: "reset", Changes: true, Fields: key, Run: func(ctx context.Context, in kit.Input) (any, error) {
				return nil, l.Reset(ctx, in.Attempt())
			}},
		},
		Ops: []string{"check", "check_local", "check_wait", "settle", "refund", "spend", "peek", "reset"},
	}
}

// tiersNow returns the limits as they are now, or none if only a function knows them.
func (l *limiter) tiersNow() []Tier {
	switch {
	case l.limits != nil:
		return []Tier{{Limits: l.limits.limits}}
	case l.tiers != nil:
		return l.tiers()
	}
	return nil
}

// isSame reports whether all attempts have the same limits.
func isSame(tiers []Tier) bool { return len(tiers) == 1 && tiers[0].Name == "" }

// settings are the limits, as [Parse] reads them.
func settings(tiers []Tier) []kit.Detail {
	if len(tiers) == 0 {
		return []kit.Detail{{Name: "limits", Value: "of each attempt"}}
	}
	all := make([]kit.Detail, len(tiers))
	for i, tier := range tiers {
		texts := make([]string, len(tier.Limits))
		for k, one := range tier.Limits {
			texts[k] = one.String()
		}
		all[i] = kit.Detail{
			Name: cmp.Or(tier.Name, "limits"), Value: cmp.Or(strings.Join(texts, ", "), "unlimited"),
		}
	}
	return all
}
