// Package answers has the responses to refused requests, and the header fields of all responses that rules
// stand in front of: statuses and texts of reasons, problems (RFC 9457), pages, RateLimit fields, tokens and
// CORS. It knows what a guard says of itself, and no rule.
//
// Applications use [Refusal], [Text], [Headers] and [TokenOf]. The rest is for package pipeline.
package answers
