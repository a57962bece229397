// Command gatehouse checks files of rules, looks at guards and resets them, runs sales, and attacks a staging
// system of your own.
//
//	go install github.com/gatehouse-go/gatehouse/cmd/gatehouse@latest
//
// The subcommands:
//
//	check    every mistake in files of rules
//	explain  which rules a request meets, with which keys, and what it is answered
//	serve    the rules of a file for everything behind a proxy
//	peek     what is left of a limit, who holds a lock, whether an actor is banned
//	reset    forget what an actor has used
//	tally    the votes of a poll
//	sale     look at a sale, open, restock, verify and close it
//	bans     who is banned now, also as a file for a proxy or a firewall
//	control  what operators have decided about limits, lists, roll-outs and budgets
//	replay   what rules would have done to the requests of an access log
//	attack   what a limit or a sale of your own staging system lets through
//	doctor   whether a Redis has what guards need, and a proxy what the gateway needs
//	version  which version this is
//
// gatehouse help COMMAND lists the flags. docs/command.md in the repository shows each of them at work.
//
// The exit codes:
//
//	0  all is well
//	1  a problem was found: a mistake in a file, a sale whose parts differ, a Redis that breaks a promise, an
//	   attack that got through
//	2  it could not be done: wrong flags, no such file, no Redis, a change that was not confirmed, an
//	   interruption
//
// The packages explain, serve, operate, edge, replay, attack and doctor have the subcommands. They share
// rules (files of rules), connect (Redis) and cli (the command line, and output), and nothing else.
// (files of rules), connect (Redis) and cli (the command line, and output), and nothing else.
package main

import (
	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/attack"
	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/doctor"
	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/edge"
	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/explain"
	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/operate"
	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/replay"
	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/serve"
)

var commands = []cli.Command{explain.Check, explain.Command, serve.Command, operate.Peek, operate.Reset,
	operate.Tally, operate.Sale, operate.Control, edge.Bans, replay.Command, attack.Command, doctor.Command,
	version}

func main() { cli.Main(commands) }
