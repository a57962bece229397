package redpacket

import (
	"context"

	"github.com/gatehouse-go/gatehouse/core"
)

// Describe implements core.Describer.
func (g *Guard) Describe() core.Description {
	packet := []core.Field{{Name: "packet", Required: true}}
	return core.Description{
		Kind: "red packet",
		Answers: append(
			core.StandardAnswers(core.ReasonDuplicate, core.ReasonClosed, core.ReasonConflict, core.ReasonNotReady),
			core.Answer{
				Reason: core.ReasonEmpty, Status: 409, Title: "All Taken",
				Detail: "All shares have been taken.", Type: "https://github.com/gatehouse-go/gatehouse#empty",
			},
		),
		Operations: []core.Operation{
			{Name: "audit", Fields: packet, Run: func(ctx context.Context, in core.Input) (any, error) {
				return g.Verify(ctx, in.Text("packet"))
			}},
			{
				Name: "refund", Changes: true, Fields: packet,
				Run: func(ctx context.Context, in core.Input) (any, error) {
					amount, err := g.Refund(ctx, in.Text("packet"))
					return map[string]int64{"amount": amount}, err
				},
			},
		},
		Ops: []string{"check", "create", "refund", "audit"},
	}
}

// Details implements what core.DetailsOf asks for: a user who tries again reads the amount of the share.
func (s share) Details() []core.Detail {
	if s == 0 {
		return nil
	}
	return []core.Detail{{Name: "amount", Value: int64(s)}}
}
