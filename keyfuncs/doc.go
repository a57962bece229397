// Package keyfuncs takes who and what from a request: the texts under which a guard counts.
//
// A key function has the type [Func]. The ones here are made once, when a rule is set up, and then called for every
// request, by many goroutines at the same time:
//
//	who  := keyfuncs.User("uid")                          // what the auth middleware stored
//	what := keyfuncs.Param("poll")                        // the {poll} of POST /polls/{poll}/votes
//	text, err := who(&keyfuncs.Request{Request: r})       // the adapters do this
//
// Most callers want [IP] where nobody is logged in and [User] where somebody is; FirstOf(User("uid"), IP()) is both.
// [Join] makes one text out of several, [Hash] hides a secret, [Require] lets nobody do without. A [List] has those whom a rule denies or lets pass uncounted.
//
// # Who can choose the text
//
// A limit holds only where its subject can not pick the text he is counted under. What each function reads is
// therefore chosen at set-up, never by the request:
//
//   - IP is the address that opened the connection. Behind a reverse proxy, name the proxy with [TrustProxies];
//     only then is a forwarding header read, and only as far as trusted proxies wrote it. A CDN's own header is read with
//     [ReadHeader], from trusted proxies alone as well.
//   - User is what your own middleware stored. It reads no header.
//   - Header, Query, Cookie, Host, Method, BasicAuth and IdempotencyKey are the client's own words. They say what a
//     request is about, and are no proof of who sent it, unless something in front has checked or overwritten them.
//
// # Nothing found, and garbage
//
// A function returns an error rather than an empty text. [ErrMissing] says that the request does not carry the thing,
// [ErrMalformed] that it carries something unusable, such as two different values where there must be one. FirstOf
// goes on after the first and stops at the second. [ErrRequired], of [Require], is a missing thing that stops everything. Errors name the function and its argument, as in
//
//	keyfuncs: Param("poll"): nothing found
//
// and quote no header, cookie or query value; forwarding headers and addresses are quoted and cut to 64 bytes. They
// are made for your log, not for the client. What is wrong at set-up (an empty name, a prefix that is none) panics
// there, with the remedy in the text.
//
// The texts are not escaped and not bounded in length: whoever builds a storage key out of one does that.
package keyfuncs
