package answers

import "github.com/gatehouse-go/gatehouse/keyfuncs"

// Headers says which figures of a rule clients see in the header of every response, allowed or refused. The
// zero value sends the fields RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers,
// revision 11.
//
//	RateLimit-Policy: "site";q=100;w=60
//	RateLimit: "site";r=42;t=60
//
// # Meaning
//
// The rule allows at most q units in w seconds. r units are left. In t seconds at least one more is: before
// that, asking again cannot help. There is no t where the guard does not know it. A policy has the name of
// its guard. If a guard has several limits, the names contain the window, as in "api/1s" and "api/24h".
// Then RateLimit-Policy lists all of them, and RateLimit has the binding limit, which is closest to its
// end. A guard with levels names the levels, as in "api/org" and "api/user", and RateLimit has all of them.
// Several rules add several items, also from several middlewares. A rule that let the request pass by its
// Allow list or its NoKey appears in neither field, nor does a shadowed rule (see [Rollout]).
//
// Guards that name a unit in their Traits have such figures: rate limits, quotas and semaphores. The figures
// of votes, stocks and shares do not help clients to pace themselves, so these guards send none unless Unit
// is set.
//
// # Failed requests
//
// Units that a failed request gives back (see Rule.Failed) count as left in the header of its response.
// They are back in Redis when the handler has returned, so an earlier request may be refused. The figures
// leave out what other requests take and give back meanwhile. Where the handler says what the request has
// cost (see [Spend]), the figures are those of the estimate.
//
// # CORS
//
// If the response has Access-Control-Allow-Origin, the fields are added to Access-Control-Expose-Headers.
// Put the CORS middleware around the rules: then refusals have its fields too. If it is inside rules that
// need not see the response, such as plain rate limits, these rules look at the header only if the request
// has an Origin. Requests from pages of other origins have it.
//
// # Refusals
//
// A refused response has the policies of the rules that were asked, and the figures of the rule that
// refused, since the other rules of the middleware have given back what they took. Retry-After has the t of
// that rule, or a later time if a middleware around it used its last unit for the request.
type Headers struct {
	// Hide hides the rule's figures and name from clients. Retry-After stays.
	Hide bool
	// Legacy adds X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset for older clients.
	// X-RateLimit-Reset is a Unix time in seconds, by the clock of this process. These fields describe one
	// rule only: the one that refused, else the one with the least left.
	Legacy bool
	// Unit is the unit of the rule's figures (parameter qu), if it differs from that of the guard, such as
	// "content-bytes" for a limit whose Cost is the length of the body. The draft's registry of units has
	// "requests" (the default), "content-bytes" and "concurrent-requests". The "items" of quotas are not in
	// it.
	Unit string
	// PartitionKey finds the key that tells clients which of several budgets a response is about (parameter
	// pk), such as keyfuncs.Param("tenant"). Clients see it, so it must not be a secret. If it is nil or
	// returns an error, there is no pk.
	PartitionKey keyfuncs.Func
}
