// Package control lets operators change limits, lists and roll-outs of all processes at once.
//
// A [Desk] keeps their decisions in Redis. Each process binds its limits, lists and roll-outs to its desk,
// by name:
//
//	desk := control.New(ctx, gate, "desk")
//	api := limit.NewSlidingWindow(gate, "api", limit.PerMinute(60))
//	desk.Limits(api)
//	desk.List("blocked", blocked)
//	desk.Rollout("tighter", try)
//
// One of them decides, for instance for an hour and one customer:
//
//	err := desk.Decide(ctx, control.Decision{
//		Kind: control.Limits, Name: "api", Of: "acme", Value: "600/min", Until: time.Now().Add(time.Hour),
//	}, "sue", "launch day")
//
// All processes hear of it by Pub/Sub, and obey with the next request. A lost message costs a second. When
// a decision ends or is withdrawn, the values of the code are in force again.
//
// The desk is a [kit.Tool]: operators use it on their page (operator.Options.Tools), and with the command
// gatehouse. Budgets keep their own decisions: see package budget.
package control

import "github.com/gatehouse-go/gatehouse/core/kit"

var _ kit.Tool = (*Desk)(nil)
