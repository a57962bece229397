// Package script runs Lua scripts on Redis, for guards and for an application's own scripts. Each runs by
// its hash, on the server of its keys, within a deadline, behind a breaker, and in a pipeline with
// concurrent calls:
//
//	var touch = script.New("touch", "return redis.call('INCR', KEYS[1])", script.AtMostOnce)
//
//	gate := core.New(rdb) // has a Runner
//	n, err := gate.Run(ctx, touch, []string{gate.Key("touches", "ann")})
//
// A [Runner] is the one entrance. Behind it, a [Call] passes the breaker of its server and waits in a queue
// while two calls are under way. It is sent in a pipeline with others, and again where that is safe: see
// [Delivery]. Keys that a call touches share a hash tag: [Runner.Key] and [Keyspace] build them, [Encode]
// makes users' text safe in them. [ReadReply] reads what a script returned.
//
// Everything in this package is safe for concurrent use, unless its documentation says otherwise.
package script
