package limit

import (
	"context"
	"strings"

	"github.com/gatehouse-go/gatehouse/core"
)

// Describe implements core.Describer.
func (l *limiter) Describe() core.Description {
	key := []core.Field{{Name: "actor", Required: true}, {Name: "resource"}}
	return core.Description{
		Kind:     "limit",
		Settings: l.settings(),
		Answers:  core.StandardAnswers(core.ReasonLimited, core.ReasonOverLimit),
		Operations: []core.Operation{
			{Name: "peek", Fields: key, Run: func(ctx context.Context, in core.Input) (any, error) {
				return l.Peek(ctx, in.Attempt())
			}},
			{Name: "reset", Changes: true, Fields: key, Run: func(ctx context.Context, in core.Input) (any, error) {
				return nil, l.Reset(ctx, in.Attempt())
			}},
		},
		Ops: []string{"check", "check_local", "settle", "refund", "spend", "peek", "reset"},
	}
}

// settings are the limits, as [Parse] reads them.
func (l *limiter) settings() []core.Detail {
	if l.limits == nil {
		return []core.Detail{{Name: "limits", Value: "of each attempt"}}
	}
	texts := make([]string, len(l.limits.limits))
	for i, one := range l.limits.limits {
		texts[i] = one.String()
	}
	return []core.Detail{{Name: "limits", Value: strings.Join(texts, ", ")}}
}
