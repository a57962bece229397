// Package idempotency runs each operation once and replays its outcome to repetitions.
//
// # In a rule
//
// Most callers make a [Guard] with [New] and put it into the first rule of a route, whose Who is the user and
// ID the Idempotency-Key of the request. nethttpmw, ginmw and echomw keep the handler's answer and replay it:
//
//	once := idempotency.New(gate, "orders", idempotency.Options{})
//
// # Without HTTP
//
// Without HTTP, [Guard.Check] begins the operation. While it runs, other attempts are denied with
// [core.ReasonInProgress]. [Guard.Settle] with [core.CommitWith] keeps an outcome. Other attempts are then
// denied with [core.ReasonDone], and [core.OutcomeOf] returns the outcome. Settle with [core.Rollback] lets
// the operation begin again, and so does the end of [Options].Lease.
//
// # Other requests with the same ID
//
// The guard keeps a fingerprint of the attempt's Item and Cost. The same ID with another fingerprint is
// denied with [core.ReasonConflict].
package idempotency
