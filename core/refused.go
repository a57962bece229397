package core

import (
	"context"
	"log/slog"

	"github.com/gatehouse-go/gatehouse/internal/warn"
)

// refusals logs refusals without a decision for LogErrors: of each kind the first one, and then one per
// minute.
type refusals struct{ sample warn.Sample[refusalKind] }

type refusalKind struct {
	guard         string
	reason        Reason
	key, function string
	shadow        bool
}

// log logs the refusal if it is due. Its level is Info: the request is wrong, or the set-up of the rule is.
// All texts come from the program.
func (r *refusals) log(ctx context.Context, logger *slog.Logger, e Event) {
	kind := refusalKind{guard: e.Guard, reason: e.Decision.Reason, key: e.Key, function: e.Function,
		shadow: e.Decision.Attempt.Shadow}
	if skipped, ok := r.sample.Due(kind); ok {
		logger.InfoContext(ctx, "gatehouse: a request was refused without a decision of its guard",
			"guard", kind.guard,
			"reason", kind.reason, "key", kind.key, "function", kind.function, "shadow", kind.shadow,
			"refusals_not_logged", skipped)
	}
}
