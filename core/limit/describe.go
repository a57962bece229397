package limit

import (
	"context"
	"strings"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
)

// Describe implements kit.Describer.
func (l *limiter) Describe() kit.Description {
	key := []kit.Field{{Name: "actor", Required: true}, {Name: "resource"}}
	return kit.Description{
		Kind:     "limit",
		Settings: l.settings(),
		Answers:  kit.StandardAnswers(core.ReasonLimited, core.ReasonOverLimit),
		Operations: []kit.Operation{
			{Name: "peek", Fields: key, Run: func(ctx context.Context, in kit.Input) (any, error) {
				return l.Peek(ctx, in.Attempt())
			}},
			{Name: "reset", Changes: true, Fields: key, Run: func(ctx context.Context, in kit.Input) (any, error) {
				return nil, l.Reset(ctx, in.Attempt())
			}},
		},
		Ops: []string{"check", "check_local", "settle", "refund", "spend", "peek", "reset"},
	}
}

// settings are the limits, as [Parse] reads them.
func (l *limiter) settings() []kit.Detail {
	if l.limits == nil {
		return []kit.Detail{{Name: "limits", Value: "of each attempt"}}
	}
	texts := make([]string, len(l.limits.limits))
	for i, one := range l.limits.limits {
		texts[i] = one.String()
	}
	return []kit.Detail{{Name: "limits", Value: strings.Join(texts, ", ")}}
}
