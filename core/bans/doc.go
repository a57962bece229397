// Package bans locks out actors that were refused too often, for a time that grows with each ban.
//
// # In a rule
//
// Most callers make a [Guard] with [New] and put it into the Bans field of a rule of nethttpmw, ginmw or
// echomw. The rule then counts each refusal, and it refuses a banned actor before it asks its own guard:
//
//	shut := bans.New(gate, "bans", bans.Options{Refusals: 50, First: time.Minute, Longest: 24 * time.Hour})
//
// # Without HTTP
//
// Without HTTP, call [Guard.Strike] after each refusal and [Guard.Check] before each attempt. [Guard.Ban],
// [Guard.Unban] and [Guard.Status] are for operators.
//
// # Floods
//
// A process remembers for at most one second what Redis said about an actor, so a flood does not become a
// flood of look-ups.
package bans
