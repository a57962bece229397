package nethttpmw

import (
	"context"
	"net/http"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/pipeline"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
	"github.com/gatehouse-go/gatehouse/pipeline/rule"
)

// What an application writes in its rules, under the name of this package.
type (
	// Rule says which guard decides and how an attempt is made from a request. It is [rule.Rule].
	Rule = rule.Rule
	// Headers says what a rule tells in the fields of answers. It is [answers.Headers].
	Headers = answers.Headers
	// Refusal is a request that a rule refuses. It is [answers.Refusal].
	Refusal = answers.Refusal
	// Text is the text of an answer to a refused request. It is [answers.Text].
	Text = answers.Text
	// Rollout lets a rule begin in steps. It is [rule.Rollout].
	Rollout = rule.Rollout
)

// What a rule does with a request without a key: see [rule.NoKey].
const (
	NoKeyRefuse = rule.NoKeyRefuse
	NoKeySkip   = rule.NoKeySkip
)

// Shadow returns a roll-out of a rule that decides and refuses nobody: see [rule.Shadow].
func Shadow() *Rollout { return rule.Shadow() }

// PlainPaths refuses requests whose path is spelled in an unusual way: see [pipeline.PlainPaths].
func PlainPaths(next http.Handler) http.Handler { return pipeline.PlainPaths(next) }

// Decision returns what the guard of that name has decided for the request of the context: see
// [pipeline.Decision].
func Decision(ctx context.Context, guard string) (core.Decision, bool) {
	return pipeline.Decision(ctx, guard)
}

// Take hands a decision to the handler, which settles it later: see [pipeline.Take].
func Take(ctx context.Context, guard string) (core.Decision, bool) { return pipeline.Take(ctx, guard) }

// Spend corrects what the request costs at a guard: see [pipeline.Spend].
func Spend(ctx context.Context, guard string, n int64) error { return pipeline.Spend(ctx, guard, n) }

// TokenOf returns the token that the client sent for a guard: see [answers.TokenOf].
func TokenOf(r *http.Request, guard string) string { return answers.TokenOf(r, guard) }
