// Package budget limits what an organisation, its teams and its users may use, all in one decision: an
// attempt counts at each level of its path, and takes nothing unless it fits at all of them.
//
//	calls := budget.New(gate, "api", budget.Options{Levels: []string{"org", "team", "user"}, Find: find})
//
// Each level has sliding windows, a billing period, or both. An operator's decision about a node of the
// tree, such as a pause or another limit, is in Redis beside its counters. The next call of each process
// obeys it.
package budget
