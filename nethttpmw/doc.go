// Package nethttpmw puts guards in front of net/http handlers. It also has what all adapters share: the Rule, the one
// pipeline that checks, answers and settles, and the table of answers.
//
// A Rule is a guard, plus the key functions that make an attempt out of a request:
//
//	perIP := nethttpmw.Rule{Guard: gate.SlidingWindow("site", core.PerMinute(100)), Who: keyfuncs.IP()}
//	mux.Handle("GET /", nethttpmw.HTTP(perIP)(home))
//
// Rules are plain data, the same for gin (package ginmw) and echo (package echomw). HTTP fits every router that takes
// func(http.Handler) http.Handler, such as chi.
//
// Several rules in one call are all or nothing: they are checked in the order given, and when one refuses, what the
// earlier ones took is given back. So the cheap and broad rule goes first, and the claim that matters goes last.
//
// In front of its guard a rule may have lists of those whom it denies or lets pass, and a ban for those who are refused too often.
//
// A refused request gets an application/problem+json body (RFC 9457) with a fixed text, or a page or plain text where its Accept header
// prefers that, and the handler does not run. Rule.Texts says it in other words, Rule.Answer in another way. Every answer, allowed or
// refused, has the fields RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers, revision 11): see Headers.
//
// After the handler the rules are settled: a failed request (status 400 and up, panic, client gone) gives back the vote or the
// units that it took.
// What could not be settled is tried again in the background, and core.Drain waits for it at the end of a process.
//
// A rule with core.Engine.Idempotency answers repetitions of a request with the answer that the first one got. It goes first in
// its middleware, or into one around the others. A refusal by a later rule is no outcome: the key is free again, and who repeats the
// request then hears how things are by then. http.TimeoutHandler belongs around such rules and not inside: inside it answers while
// the handler still runs, so that the operation counts as failed and may be begun again beside it.
package nethttpmw
