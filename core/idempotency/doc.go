// Package idempotency runs each operation once and keeps its outcome for those who ask again.
//
// Most callers make a [Guard] with [New] and put it into the first rule of a route, whose Who is the user and
// ID the Idempotency-Key of the request. nethttpmw, ginmw and echomw keep the handler's answer and replay it:
//
//	once := idempotency.New(gate, "orders", idempotency.Options{MaxBody: 16 << 10})
//
// Without HTTP: Check begins the operation. While it runs, others are refused with core.ReasonInProgress.
// Settle with core.CommitWith keeps an outcome; others are then refused with core.ReasonDone, and
// core.OutcomeOf returns it. Settle with core.Rollback lets the operation begin anew, and so does the end of
// [Options].Lease.
//
// The guard keeps a fingerprint of the attempt's Item and Cost. The same ID with another fingerprint is
// refused with core.ReasonConflict.
package idempotency
