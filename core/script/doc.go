// Package script runs Lua scripts on Redis: each by its hash, on whichever server has its keys, within a
// deadline, behind a breaker, and together with others of the same moment. It is what guards call Redis by,
// and what an application's own scripts run by:
//
//	var touch = script.New("touch", "return redis.call('INCR', KEYS[1])", script.AtMostOnce)
//
//	gate := core.New(rdb) // has a Runner
//	n, err := gate.Run(ctx, touch, []string{gate.Key("touches", "ann")})
//
// A [Runner] is the one entrance. Behind it, a [Call] passes the breaker of its server, waits in a queue
// while two calls are under way, goes out in a pipeline with others, and is sent again where that is safe:
// see [Delivery]. Keys that a call touches share a hash tag: [Runner.Key] and [Keyspace] build them,
// [Encode] makes users' text safe in them. [ReadReply] reads what a script returned.
//
// Everything in this package is safe for concurrent use, unless its documentation says otherwise.
package script
