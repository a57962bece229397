package core

import "context"

// Refused reports a request that an adapter has refused without a decision of the guard. The observer of the
// guard's engine gets an [Event] with the Op refuse. Of d it has the guard's name, the reason, and whether
// the refusal is in the shadow; the texts of the attempt are left out, since clients choose them. key and
// function become the event's Key and Function. A guard without an engine has no observer.
func Refused(ctx context.Context, guard any, d Decision, key, function string) {
	own, ok := guard.(interface{ Engine() *Engine })
	if !ok || own.Engine() == nil {
		return
	}
	d.Attempt = Attempt{Shadow: d.Attempt.Shadow}
	own.Engine().observer.Observe(ctx, Event{Guard: d.Guard, Op: "refuse", Decision: d, Key: key,
		Function: function})
}
