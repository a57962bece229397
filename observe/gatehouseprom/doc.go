// Package gatehouseprom shows what Gatehouse's guards do as Prometheus metrics.
//
//	metrics := gatehouseprom.New(prometheus.DefaultRegisterer)
//	gate := core.New(rdb, core.WithObserver(core.Observers(core.LogErrors(), metrics)))
//
// One Observer serves all engines of a process. The metrics:
//
//	gatehouse_decisions_total{guard,reason,source}         attempts, by what became of them and who decided
//	gatehouse_near_limit_total{guard}                      attempts that left less than 20 % of their limit
//	gatehouse_errors_total{guard,op,kind}                  calls that failed, by core.Event.ErrorKind
//	gatehouse_call_duration_seconds{guard,op,source}       how long calls took, a histogram
//	gatehouse_breakers_open                                breakers that are open now
//	gatehouse_breaker_changes_total{to}                    breakers that have turned "open" or "closed"
//
// The labels are words of the program: guard is a guard's name, reason a core.Reason, source what core.Event.Source
// says, op one of core.Event.Op. Who does what is in no label, so the number of series does not depend on the traffic.
//
// A dashboard for Grafana is beside this file, with a description of each panel in README.md.
package gatehouseprom
