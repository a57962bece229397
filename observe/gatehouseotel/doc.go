// Package gatehouseotel shows what Gatehouse's guards do as OpenTelemetry metrics and spans.
//
//	telemetry, err := gatehouseotel.New(gatehouseotel.Options{})
//	gate := core.New(rdb, core.WithObserver(core.Observers(core.LogErrors(), telemetry)))
//
// It needs the OpenTelemetry API only; exporters and providers are the application's. One Observer serves all engines of a
// process. The metrics:
//
//	gatehouse.decisions          {attempt}  attempts, by gatehouse.guard, gatehouse.reason and gatehouse.source
//	gatehouse.near_limit         {attempt}  attempts that left less than 20 % of their limit, by gatehouse.guard
//	gatehouse.call.duration      s          how long calls took, by gatehouse.guard, gatehouse.op, gatehouse.source, and error.type
//	                                        where they failed: a kind that core.Event.ErrorKind lists, such as timeout, unsettled (an
//	                                        attempt was given up) and backlog (too many wait to be settled)
//	gatehouse.breaker.open       {breaker}  breakers that are open now
//	gatehouse.breaker.changes    {change}   breakers that have turned, by gatehouse.breaker.state: open or closed
//
// Each call is a span of its own, "gatehouse check" and so on, a child of the span in the call's context, with the attributes above
// and gatehouse.allowed. Calls of Redis that the client traces are beside it and not below it, because a guard tells of a call when it
// has ended.
//
// Who does what is in no attribute, and errors are told by their kind only, since their texts may have keys in them.
package gatehouseotel
