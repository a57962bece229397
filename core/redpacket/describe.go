package redpacket

import (
	"context"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
)

// Describe implements [kit.Describer].
func (g *Guard) Describe() kit.Description {
	packet := []kit.Field{{Name: "packet", Required: true, Hint: "the name of the packet, such as party"}}
	return kit.Description{
		Kind: "red packet",
		Answers: append(
			kit.StandardAnswers(core.ReasonDuplicate, core.ReasonClosed, core.ReasonConflict, core.ReasonNotReady),
			kit.Answer{
				Reason: core.ReasonEmpty, Status: 409, Title: "All Taken",
				PageTitle: "All taken", PageDetail: "All shares of this packet have been taken.",
				Detail: "All shares have been taken.",
				Type:   "https://github.com/gatehouse-go/gatehouse/blob/main/docs/guides/answers.md#empty",
			},
		),
		Operations: []kit.Operation{
			{Name: "verify", Fields: packet, Run: func(ctx context.Context, in kit.Input) (any, error) {
				return g.Verify(ctx, in.Text("packet"))
			}},
			{
				Name: "refund", Changes: true, Fields: packet,
				Run: func(ctx context.Context, in kit.Input) (any, error) {
					amount, err := g.Refund(ctx, in.Text("packet"))
					return map[string]int64{"amount": amount}, err
				},
			},
		},
		Ops: []string{"check", "create", "refund", "verify"},
	}
}

// Details implements the interface that kit.DetailsOf looks for: a user who tries again reads the amount of
// their share.
func (s share) Details() []kit.Detail {
	if s == 0 {
		return nil
	}
	return []kit.Detail{{Name: "amount", Value: int64(s)}}
}
