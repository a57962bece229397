// Package pipeline has what all adapters share: the [Rule], the [Pipeline] that checks, answers and settles
// requests, and the responses to refused requests. The adapters nethttpmw, ginmw, echomw, echov5mw and
// fibermw make middlewares of it, each for its framework.
//
// A [Rule] is a guard with the key functions that make an attempt out of a request:
//
//	perIP := pipeline.Rule{
//		Guard: limit.NewSlidingWindow(gate, "site", limit.PerMinute(100)),
//		Who:   keyfuncs.IP(),
//	}
//	mux.Handle("GET /", nethttpmw.HTTP(perIP)(home))
//
// Rules are plain data. The same rules work with all adapters, which name the type [Rule] as their own.
//
// # Several rules
//
// The rules of one middleware are all or nothing. They are checked in the given order. When a rule refuses,
// the pipeline gives back what the earlier rules took. So put cheap and broad rules first, and the claim that
// matters last.
//
// A rule may deny or allow some clients by a list before its guard is asked, and may ban clients that are
// refused too often: see [Rule].
//
// # Responses
//
// The handler does not run for a refused request. The client gets an application/problem+json body (RFC 9457)
// with a fixed text, or a page or plain text if its Accept header prefers that. Rule.Texts changes the text,
// Rule.Answer the whole response. With rate limits, quotas and semaphores every response, allowed or refused,
// has the fields RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers, revision 11): see
// [answers.Headers].
//
// # Settling
//
// The rules are settled by the status of the response. A failed request (status 400 or above, a panic, a
// client that disconnected before a response) gives back the vote or the units that it took. Rate limits and
// red packets count however the request ends, unless Rule.Failed or Rule.Counted says otherwise. If Redis is
// unavailable, the pipeline retries in the background, and core.Drain waits for that at the end of a process.
//
// # Outages
//
// If Redis does not answer within the engine's deadline (100 ms by default), Rule.OnOutage decides. By
// default rate limits go on inside the process, bans let everybody pass, and all other guards refuse with
// 503.
//
// # Replays
//
// A client that sends a request again, with the same operation ID, gets the decision again
// (Decision.Replayed). The handler does not run again for an operation that is done:
//
//   - The operation is done (Decision.Kept): a sale is sold, a vote is kept. The answer is the stored one
//     if an Idempotency rule of the pipeline has it. Else it is 200 with the reason replayed and the guard's
//     details. Both have the field Idempotent-Replayed, and count against no limit of the pipeline.
//   - A claim that needs a confirmation (core.Traits.Confirms) has none yet: the first request runs, its
//     process has died, or its handler has called [Take]. The client gets in_progress, with Retry-After,
//     until the claim is confirmed, given back or expired. So one key makes one order, however many
//     requests have it.
//   - Otherwise the handler runs, and finds Decision.Replayed set. This holds for quotas, red packets, and
//     votes that no request has kept yet. It also holds for requests with another claim that is not
//     confirmed yet, as when the process died between two confirmations.
//
// Rule.RunReplays makes the handler run in all cases. A sale in two steps needs it where a client asks
// again for a claim that its handler took, or where both requests pass the rule with the same ID. A handler
// or a worker that calls seckill.Guard.Confirm by name needs nothing.
//
// # Deferred requests
//
// A rule with Defer stores requests that its guard refuses until a known moment. It answers with 202 and a
// Location in place of 429: see package deferred. Middlewares of rules around it give back what they took,
// because the request passes all of them again when it runs later.
//
// # Idempotency
//
// A rule with a guard of idempotency.New answers repetitions of a request with the response to the first one.
// Put it first in its middleware, or into a middleware around the others. A refusal by a later rule is not an
// outcome: the key is free again, and a repetition is decided anew. Put http.TimeoutHandler around such
// rules, not inside them. Inside, it responds while the handler still runs, so that the operation counts as
// failed and may be started a second time beside the first.
package pipeline
