package core

import "context"

// Refused tells the observer of a guard's engine of a request that an adapter has refused without a decision of
// the guard: an [Event] with the Op refuse. The decision has the name of the guard, the reason, and whether the
// refusal is in the shadow; its texts of the attempt are left out, since clients choose them. A guard without an
// engine has no observer.
func Refused(ctx context.Context, guard any, d Decision, key, function string) {
	own, ok := guard.(interface{ Engine() *Engine })
	if !ok || own.Engine() == nil {
		return
	}
	d.Attempt = Attempt{Shadow: d.Attempt.Shadow}
	own.Engine().observer.Observe(ctx, Event{Guard: d.Guard, Op: "refuse", Decision: d, Key: key,
		Function: function})
}
