// Package budget limits what an organisation, its teams and its users may use, all in one decision: an
// attempt counts at each level of its path, and takes nothing unless it fits at all of them.
//
//	calls := budget.New(gate, "api", budget.Options{Levels: []string{"org", "team", "user"}, Find: find})
//
// Each level has sliding windows, a billing period, or both. Operators pause a node of the tree, or give it
// another Max, by the desk of package control. Their decisions are in Redis beside the node's counters. The
// next call of each process obeys them.
package budget
