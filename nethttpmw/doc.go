// Package nethttpmw puts guards in front of net/http handlers. It only translates: package [pipeline]
// describes the rules, the answers and how attempts are settled.
//
//	import ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
//
//	handler = ratelimit.PerIP(gate, limit.PerMinute(100))(handler)
//
// # Middlewares
//
// [PerIP] is the most common one. [HTTP] makes a middleware of one or more rules, and fits every router that
// takes func(http.Handler) http.Handler, such as chi. [Follow] does so for rules that may change while
// requests are served, such as those of package config.
//
// # Who the client is
//
// Mount the login in front of rules that need it, and store its name with [keyfuncs.WithValue], where
// [keyfuncs.User] finds it. [keyfuncs.IP] finds the client's address. [keyfuncs.Param] and [keyfuncs.Route]
// know http.ServeMux and chi behind their routes.
//
// # Handlers
//
// [Decision] tells a handler what a guard has decided. [Take] hands it the decision to settle later, and
// [Spend] corrects an estimated cost.
//
// # gRPC
//
// A client of gRPC makes the status Unavailable of a 429, without the time to wait. So do not put a rule in
// front of a gRPC server: docs/guides/not-only-http.md in the repository has interceptors.
package nethttpmw
