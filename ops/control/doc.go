// Package control lets operators change limits, lists, roll-outs and budgets of all processes at once.
//
// A [Desk] keeps their decisions in Redis. Each process binds its limits, lists, roll-outs and budgets to its
// desk, by name:
//
//	desk := control.New(ctx, gate, "desk")
//	api := limit.NewSlidingWindow(gate, "api", limit.PerMinute(60))
//	desk.Limits(api)
//	desk.List("blocked", blocked)
//	desk.Rollout("tighter", try)
//	desk.Budget(calls)
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
// gatehouse.
//
// The decisions about a budget are kept beside its counts. Its script reads them, so each process obeys with
// its next call.
package control

import "github.com/gatehouse-go/gatehouse/core/kit"

var _ kit.Tool = (*Desk)(nil)
