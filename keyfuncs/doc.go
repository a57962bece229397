// Package keyfuncs takes from a request the texts under which a guard counts: who makes the request, and
// what it is about.
//
// A key function has the type [Func]. The functions of this package make key functions: once, at set-up.
// Many goroutines then call the key functions at the same time, for every request:
//
//	who  := keyfuncs.User("uid")                          // what the auth middleware stored
//	what := keyfuncs.Param("poll")                        // the {poll} of POST /polls/{poll}/votes
//	text, err := who(&keyfuncs.Request{Request: r})       // the adapters do this
//
// Most callers want [IP] where nobody is logged in and [User] where somebody is; FirstOf(User("uid"), IP())
// is both. [Join] makes one text out of several, [Hash] hides a secret, and [Require] refuses requests that
// do not carry the text. A [List] holds the keys that a rule denies or lets pass uncounted.
//
// # Who can choose the text
//
// A limit holds only where clients cannot pick the text that they are counted under. What each function
// reads is therefore chosen at set-up, never by the request:
//
//   - IP is the address that opened the connection. Behind a reverse proxy, name the proxy with
//     [TrustProxies]. Only then does IP read a forwarding header, and only the part that trusted proxies
//     wrote. [ReadHeader] reads a CDN's own header, also from trusted proxies only.
//   - User is what your own middleware stored. It reads no header.
//   - Header, Query, Cookie, Form, JSON, Host, Method, BasicAuth and IdempotencyKey are what the client says.
//     They say what a request is about. They do not prove who sent it, unless something in front has
//     checked or overwritten them.
//
// # Errors
//
// A function returns an error rather than an empty text. [ErrMissing] says that the request does not carry
// the text. [ErrMalformed] says that it carries something unusable, such as two different values where
// there must be one. FirstOf goes on after ErrMissing and stops at ErrMalformed. [ErrRequired], which
// [Require] returns, is a missing text that stops everything. Errors name the function and its argument, as
// in
//
//	keyfuncs: Param("poll"): nothing found
//
// They quote forwarding headers and addresses, cut to 64 bytes, but no other header, cookie or query value.
// They are for your log, not for the client. Mistakes at set-up (an empty name, an invalid prefix) panic,
// and the text of the panic names the remedy.
//
// The texts are neither escaped nor bounded in length: the code that builds a storage key from them does
// that.
package keyfuncs
