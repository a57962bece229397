// Package transport keeps calls to partners within their limits: for all processes together, and before the
// partner says no.
//
//	partner := limit.NewTokenBucket(gate, "partner", limit.PerMinute(600))
//	client := &http.Client{Transport: transport.New(nil, transport.Rule{
//		Guard: partner,
//		Who:   keyfuncs.Const("account-7"),
//		Most:  2 * time.Second,
//	})}
//
// A request waits for its units for Most, or fails with a [*LimitedError] that says when to try again. What
// the partner says counts, too: after an answer with Retry-After, or with RateLimit fields that say that
// nothing is left, no process sends a request of that account until then (see [Rule]).
//
// # Where it stands
//
// Each request that goes through the transport counts, also a redirect and a retry. Below a cache only what
// the cache does not have counts, and above it everything. An outer transport that signs or traces requests,
// such as those of oauth2 and otelhttp, may stand on either side: outside, its own time includes the wait.
//
// # What comes back
//
// A request that was not sent gives its units back: there was no connection, or its context was over, before
// the header was written. A request that was sent counts, whatever its answer. The body of a request is never
// read and never sent again. A semaphore's permit comes back when the body of the response is closed or read
// to its end, and the rest of an estimate when it is closed.
//
// It needs a base transport that tells httptrace of its connections, as http.Transport does. With any other,
// a request that fails counts as sent.
package transport
