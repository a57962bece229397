// Package kit has the parts of which guards are made. An application's own guards have the same access as
// the built-in ones. Applications that only use guards need package core. docs/new-guard.md walks through a
// guard.
//
// In the order in which an author needs it:
//
//  1. [Register] takes the guard's name and scripts, and returns a [Base], which the guard embeds. A guard
//     whose state must outlive the process begins with [NeedRedis]. A Base has the keys ([Base.Key],
//     [TagOf]), the engine, and its observer: [Base.Decide], [Base.Call] and [Look] tell it of every call.
//  2. Check prepares the attempt (core.Attempt.PrepareClaim and its like), runs one script by
//     script.Runner.RunWithin, reads the reply by script.ReadReply, and keeps in core.Decision.SetClaim what
//     Settle needs. [Claimed] gets it back.
//  3. A call that ended with an error may have run all the same: [RoomToUndo] before it, [Base.UndoLater]
//     after it, and a tombstone ([TombstoneTTL]) for the case that it arrives late.
//  4. Describe ([Describer]) says how refusals are answered and what an operator can do.
//  5. Some guards have more: answers that the process remembers ([Recall], [Recaller]), claims that can be
//     lost while they are held ([Holder]), decisions without Redis ([LocalGuard]), checks that share a
//     round trip with other rules ([Phased]).
//
// Adapters use [DescriptionOf], [PhasesOf] and [Refused], and from package core Place and LoggerOf.
//
// Everything in this package is safe for concurrent use, unless its documentation says otherwise.
package kit
