// Package gatehouseprom exports what Gatehouse's guards do as Prometheus metrics.
//
//	metrics := gatehouseprom.New(prometheus.DefaultRegisterer)
//	gate := core.New(rdb, core.WithObserver(core.Observers(core.LogErrors(), metrics)))
//
// One [Observer] serves all engines of a process.
//
// # Metrics
//
//	gatehouse_decisions_total{guard,reason,source}         attempts, by reason and source
//	gatehouse_near_limit_total{guard}                      allowed attempts that left less than 20 % of their limit
//	gatehouse_refusals_total{guard,key,reason,source}      requests refused without a decision, by core.Event.Key
//	gatehouse_errors_total{guard,op,kind}                  failed calls, by core.Event.ErrorKind
//	gatehouse_call_duration_seconds{guard,op,source}       duration of calls, a histogram
//	gatehouse_breakers_open                                breakers that are open now
//	gatehouse_breaker_changes_total{to}                    breakers that became "open" or "closed"
//
// All label values come from the program: guard is the name of a guard, reason a [core.Reason], source a
// value of core.Event.Source, op a value of core.Event.Op, key a value of core.Event.Key. No label contains
// an actor or a resource, so the number of series does not depend on the traffic.
//
// # Dashboard
//
// A Grafana dashboard is in dashboard.json, beside this file. README.md describes its panels.
package gatehouseprom
