// Package operator is an [http.Handler] for those who run an application: it shows its guards and where a key stands in them, and
// changes what has to be changed by hand: reset a limit, lift a ban, restock or close a sale, roll a rule out.
//
//	ops := operator.New(operator.Options{
//		Rules:     []nethttpmw.Rule{perIP, vote, buy},
//		Authorize: func(r *http.Request, a operator.Action) (string, error) { return staff.May(r, a.Guard, a.Name) },
//	})
//	mux.Handle("/ops/", http.StripPrefix("/ops", login(ops)))
//
// It is meant to be mounted behind the application's own login. Nothing is shown or done that Authorize has not allowed, and every
// change leaves two audit events: one before it, without which it is not made, and one that says how it ended.
//
//	GET  /                     the guards and what can be asked of them
//	GET  /{guard}/{action}     looks: peek, status, tally, ... with the fields as query parameters
//	POST /{guard}/{action}     changes: reset, unban, restock, ... with the fields as a form or a JSON object of texts
//
// Answers are JSON, or plain pages for who asks for text/html. Pages work without scripts. A browser that comes from another
// site changes nothing (see [http.CrossOriginProtection]).
package operator
