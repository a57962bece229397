// Package lives explores the lives of guards and tools: it runs every short sequence of events (begin, use,
// give back, change, end, begin again, time that passes, a call that arrives twice) on a real Redis, and
// compares each answer with a definition.
//
// A guard has a file NAME_test.go with
//
//   - its alphabet: a dozen events, each a short word ("use", "refund", "opens later", "after the border");
//   - its definition: a list of what was given to whom, and sentences. A definition is plain. It never copies
//     how the product forgets;
//   - a row of the table "Lives" in docs/contracts.md.
//
// It registers them with
//
//	var _ = explore(life{name: "budget", of: []string{"budget"}, events: alphabet(...), world: ...})
//
// A guard or tool of internal/testkit/everyguard without a life fails [TestEveryGuardHasALife]. To run:
//
//	go test ./internal/testkit/lives                                # of up to four events, 25 of a length
//	GATEHOUSE_ALL=1 go test ./internal/testkit/lives                # the same, 250
//	GATEHOUSE_SOAK=1 go test -timeout 1h ./internal/testkit/lives   # up to seven, 5,000 of a length at most
//	EXPLORE_LENGTH=5 EXPLORE_MOST=1000000 go test ./internal/testkit/lives -run '^TestLives$/^budget$' -v
//	EXPLORE='use refund use' go test ./internal/testkit/lives -run '^TestLives$/^budget$' -v
//
// Sequences are run by length, so the first failure is the shortest. Nothing is run behind a sequence that
// fails or is impossible: mend, and run again. Where a length has more sequences than are run, they are
// drawn, and the seed is printed (EXPLORE_SEED repeats it).
//
// Each worker has a database of its own on one redis-server, empty when a sequence begins, and a clock that
// only events move. When it moves, the TTL of every key moves along; between events keys age by the clock of
// the machine, so "just before" the end of a TTL is ten seconds before. When a sequence ends, a key without a
// TTL is a failure.
package lives
