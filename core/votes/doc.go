// Package votes counts one vote per voter, or as many as a poll allows.
//
// # In a rule
//
// Most callers make a [Guard] with [New] and use it in a rule, whose Who is the voter, What the poll and
// Which the choice:
//
//	poll := votes.New(gate, "poll", votes.Options{Find: polls})
//
// # Polls
//
// [Options].Find returns a [Poll]: its choices, when it opens and closes, and how many votes a voter has per
// poll, per choice and per day. One script changes the voter's record and the tally, so the tally is always
// the sum of the records. A failed request takes its vote back.
//
// # Results
//
// [Guard.Tally] and [Guard.Top] return results, and [Choices] the votes of a decision's voter. [Guard.Verify]
// compares the tally with the records, and [Guard.Repair] corrects it. With [Options].Audit a stream keeps
// each change for [Guard.Audit], and [Guard.Void] removes the votes that a filter selects.
package votes
