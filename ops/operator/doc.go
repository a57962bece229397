// Package operator is an [http.Handler] for the people who run an application. It shows the application's
// guards and the state of a key in each of them. It also makes the changes that have to be made by hand:
// reset a limit, lift a ban, restock or close a sale, roll out a rule.
//
//	ops := operator.New(operator.Options{
//		Rules: []pipeline.Rule{perIP, vote, buy},
//		Authorize: func(r *keyfuncs.Request, a operator.Action) (string, error) {
//			return staff.May(r.Context(), a.Guard, a.Name)
//		},
//	})
//	mux.Handle("/ops/", login(ops))
//
// On gin, r.Any("/ops/*page", login, ginmw.Page(ops)); on echo, e.Any("/ops/*", echomw.Page(ops), login).
// keyfuncs.User finds the values that the login has stored with c.Set.
//
// # Security
//
// Mount it behind the application's own login. The handler shows and does nothing that [Options].Authorize
// has not allowed. Cross-origin requests of a browser cannot change anything (see
// [http.CrossOriginProtection]).
//
// # Audit
//
// Every change leaves two audit events ([Event]). The first is written before the change, which is not made
// if the write fails. The second records the result. [Options].Audit receives them.
//
// # Requests
//
//	GET  /                     lists the guards and their actions
//	GET  /{guard}/{action}     reads: peek, status, tally, ... with the fields as query parameters
//	POST /{guard}/{action}     changes: reset, unban, restock, ... with the fields as a form or a JSON object
//
// A guard's actions are the operations of its [kit.Description]. A rule with a Rollout adds rollout,
// set-rollout and switch. If the rules of a guard in several of [Options].Lists have different ones, these
// names end with "-" and that of the list.
//
// # Responses
//
// Responses are JSON, errors are problem documents with title, status and detail:
//
//	400  a field is missing or malformed
//	403  Authorize denied the action
//	404  there is no such guard, action, poll, sale, ...
//	405  a change was asked for with GET, or a read with POST
//	409  the action is not possible now
//	503  the audit failed, so nothing was changed; or the action failed, or its result is unknown
//
// # Pages
//
// A client that accepts text/html gets pages. The page of the list shows the state at a glance: the
// settings of each guard, its rollout, the results of [Options].Shown, and the servers of Redis that are
// not called because a breaker is open. With scripts it keeps the figures up to date. Everything works
// without. Before a change that no other action takes back, a page asks for a confirmation. Clients of JSON
// are not asked.
package operator
