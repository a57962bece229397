// Package gatehouseotel exports what Gatehouse's guards do as OpenTelemetry metrics and spans.
//
//	telemetry, err := gatehouseotel.New(gatehouseotel.Options{})
//	gate := core.New(rdb, core.WithObserver(core.Observers(core.LogErrors(), telemetry)))
//
// It needs the OpenTelemetry API only: the application chooses exporters and providers. One [Observer] serves
// all engines of a process.
//
// # Metrics
//
//	gatehouse.decisions          {attempt}  attempts, by gatehouse.guard, gatehouse.reason and gatehouse.source
//	gatehouse.near_limit         {attempt}  allowed attempts that left less than 20 % of their limit, by gatehouse.guard
//	gatehouse.refusals           {request}  requests that were refused without a decision, by gatehouse.guard,
//	                                        gatehouse.key (see core.Event), gatehouse.reason and gatehouse.shadow
//	gatehouse.call.duration      s          duration of calls, by gatehouse.guard, gatehouse.op, gatehouse.source, and
//	                                        error.type for failed calls: a kind that core.Event.ErrorKind lists, such as
//	                                        timeout, unsettled (an attempt could not be settled in time) and backlog (too
//	                                        many attempts are waiting to be settled)
//	gatehouse.breaker.open       {breaker}  breakers that are open now
//	gatehouse.breaker.changes    {change}   breakers that changed, by gatehouse.breaker.state: open or closed
//
// # Spans
//
// Each call is a span of its own, such as "gatehouse check". It is a child of the span in the call's context
// and has the attributes above and gatehouse.allowed. An observer is told about a call when it has ended. So
// the spans of a traced Redis client are siblings of this span, not its children.
//
// # Privacy
//
// No attribute contains an actor or a resource. Errors appear as their kind only, because their texts may
// contain keys.
package gatehouseotel
