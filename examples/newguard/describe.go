package newguard

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
)

// ReasonFull refuses a member because the course has no place left.
const ReasonFull core.Reason = "full"

// Describe implements core.Describer. It defines the answers to refusals and the operation for operators.
func (g *Guard) Describe() core.Description {
	return core.Description{
		Kind: "places",
		Answers: append(core.StandardAnswers(core.ReasonDuplicate, core.ReasonGone),
			core.Answer{Reason: ReasonFull, Status: 409, Title: "Full", Detail: "This course is full."}),
		Operations: []core.Operation{{
			Name:   "taken",
			Fields: []core.Field{{Name: "course", Required: true}},
			Run: func(ctx context.Context, in core.Input) (any, error) {
				return g.Taken(ctx, in.Text("course"))
			},
		}},
		Ops: []string{"check", "settle", "taken"},
	}
}

// Taken returns how many places of a course are taken. It is 0 for an unknown course.
func (g *Guard) Taken(ctx context.Context, course string) (int64, error) {
	return core.Look(ctx, &g.Base, "taken", core.Attempt{Resource: course}, func() (int64, error) {
		return core.Query(ctx, g.Engine(), redis.NewIntCmd(ctx, "hlen", g.Key(core.Encode(course), "taken")))
	})
}
