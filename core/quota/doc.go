// Package quota limits the number of different items that each actor may have per period, such as points for
// ten articles per day.
//
// # In a rule
//
// Most callers make a [Guard] with [New] and use it in a rule, whose Who is the actor and Which the item:
//
//	points := quota.New(gate, "points", quota.Options{Items: 10, Period: period.Daily(time.UTC)})
//
// The first attempt for an item counts it. Later attempts for it in the same period are free and get
// [core.ReasonAgain]. A failed request takes its item back. The set of items is exact. Package period makes
// periods.
//
// # Operating
//
// [Guard.Used] returns the items of an actor; [Guard.Reset] deletes them.
package quota
