// Package deferred stores requests that a rule refuses for now, and runs them later: in place of 429, the
// client gets 202 and the address of a page that will have the answer.
//
// A rule with a [Requests] as its Defer stores such a request in a queue (package delay). A worker runs it
// through the application's own handler, when the guard expects to allow it:
//
//	exports := deferred.New(delay.New(gate, "exports", delay.Options{}), deferred.Options{
//		Who:     keyfuncs.User("uid"),
//		Limit:   limit.NewSlidingWindow(gate, "deferred", limit.PerHour(100)),
//		Secrets: [][]byte{secret},
//	})
//	busy := pipeline.Rule{Guard: slots, Who: keyfuncs.Const("all"), Defer: exports}
//	mux.Handle("POST /exports", nethttpmw.HTTP(busy)(export))
//	mux.Handle("GET /deferred/{id}", exports)
//	app := login(mux)
//	go exports.Work(ctx, app, delay.WorkOptions{Concurrency: 10})
//
// # Who may read the answer
//
// Options.Who finds the principal, the user who is logged in. The page answers the principal of the
// request, and gives 404 to everybody else. A request without a principal is never deferred. Mount the page
// behind the same login as the routes. On gin and echo, mount it with Page of the adapter (ginmw.Page), so
// that Who finds the values that the login has stored there.
//
// # Credentials
//
// Credentials are not stored. The request runs later as its principal: [Principal] returns it from the
// context of the request. The login accepts it in place of credentials. A client cannot forge it, since
// nothing of a request gets into its context:
//
//	func login(next http.Handler) http.Handler {
//		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
//			uid, ok := deferred.Principal(r.Context())
//			if !ok {
//				uid, ok = session(r)
//			}
//			...
//
// There it may also look whether the account still exists. If the login cannot be changed, Options.Restore
// adds what the login needs, such as a fresh token of the principal.
//
// # What is stored
//
// A stored request has everything that middlewares use: the principal, the method, the path and query, the
// host, the address of the peer, the version and server name of TLS, the body up to Options.MaxBody, and
// the header fields. So a middleware that protects from other sites, or redirects to https, decides as it
// would have at once.
//
// Left out are Accept-Encoding, the certificates of clients, and the fields that hold credentials: those
// whose name contains authorization, authentication, cookie, token, secret, password, passphrase, session,
// jwt, credential, signature, certificate, csrf or xsrf, those with a word such as auth, key, cert, otp,
// pass, pin, sig or sid (X-Auth-Key, X-Client-Cert, but not Idempotency-Key), and those in
// Options.Credentials. A middleware that uses one of these, such as a CSRF protection by tokens, belongs
// outside the rule, and has to let a request with a [Principal] pass.
//
// A stored request is sealed with Options.Secrets. Without them it is readable in Redis, so do not defer
// requests with a secret in the body, the query or another field then. A request is refused as without
// Defer if its body is longer, or if with its header it is longer than delay.Options.MaxPayload. So is a
// request that has a field which is not UTF-8, that upgrades the connection, that would wait for longer
// than Options.MaxWait, or that cannot be stored because Redis is unavailable.
//
// # Who can write to Redis
//
// Each stored request, and each answer, is sealed with the first of Options.Secrets. A request that none of
// them opens does not run: it has failed, and is logged. The seal covers all of the request, its principal,
// its ID and the queue. Without secrets, anybody who can read Redis reads them, and anybody who can write
// to it can make requests run as any user.
//
// With secrets writers can still delete and delay requests, and run a stored one again as it was, by deleting
// the record that it is done.
//
// # Answers that no handler gave
//
// The answer of the handler is kept. So is the answer of a middleware between the rule and the handler, and
// a guard's final refusal. An answer from in front of the rule that deferred the request, such as a
// redirect or a login, is not the request's answer: the request has failed, which is logged as an error. If
// the status is 429, or 500 and above, it is tried again first.
//
// # Once and again
//
// A request is stored once per principal and operation ID (Options.ID). A repetition gets the same 202 and
// the same Location, also when the rules would allow it by then. To find that out costs a call. Another
// request with the same ID gets 422. A request without an ID gets one, as a part of its Location.
//
// A stored request runs at least once. When it runs, its rules are asked again, and count it then. If they
// refuse it once more, it waits again, as long as they say. This is no failed try, but ends when the
// request is as old as Options.MaxAge. A panic, a status of 500 and above, and the death of the worker are
// failed tries. After delay.Options.MaxTries of them the request has failed.
//
// So a handler has to be safe to repeat. A rule of idempotency on the route makes it so, since the stored
// request has the key of the first one. So does a database that knows the key.
//
// Requests do not wait in line: a request that comes at the right moment runs before stored requests.
//
// Two requests with the same ID at the very same moment may part: one passes the rules and runs, and the
// other is stored, and runs later. Here, too, a rule of idempotency lets one of them run.
package deferred
