// Package quota lets each actor have a number of different items per period, such as points for ten articles
// a day.
//
// Most callers make a [Guard] with [New] and use it in a rule, whose Who is the actor and Which the item:
//
//	points := quota.New(gate, "points", quota.Options{Items: 10, Period: period.Daily(time.UTC)})
//
// The first attempt for an item counts. Later attempts for it in the same period are free, with
// core.ReasonAgain. A failed request takes its item back. The set of items is exact. Package period has the
// periods.
//
// [Guard.Used] returns the items of an actor; [Guard.Reset] forgets them.
package quota
