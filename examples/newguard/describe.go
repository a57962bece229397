package newguard

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
)

// ReasonFull refuses a member because the course has no place left.
const ReasonFull core.Reason = "full"

// Describe implements kit.Describer. It defines the answers to refusals and the operation for operators.
func (g *Guard) Describe() kit.Description {
	return kit.Description{
		Kind: "places",
		Answers: append(kit.StandardAnswers(core.ReasonDuplicate, core.ReasonGone),
			kit.Answer{Reason: ReasonFull, Status: 409, Title: "Full", Detail: "This course is full."}),
		Operations: []kit.Operation{{
			Name:   "taken",
			Fields: []kit.Field{{Name: "course", Required: true}},
			Run: func(ctx context.Context, in kit.Input) (any, error) {
				return g.Taken(ctx, in.Text("course"))
			},
		}},
		Ops: []string{"check", "settle", "taken"},
	}
}

// Taken returns how many places of a course are taken. It is 0 for an unknown course.
func (g *Guard) Taken(ctx context.Context, course string) (int64, error) {
	return kit.Look(ctx, &g.Base, "taken", core.Attempt{Resource: course}, func() (int64, error) {
		taken := redis.NewIntCmd(ctx, "hlen", g.Key(script.Encode(course), "taken"))
		return script.Query(ctx, g.Engine().Runner, taken)
	})
}
