// Package walk tells how much code an allowed request runs. What a rule does not have must cost it nothing.
// So testdata/walk.txt has the figures of a few routes, and a rise is a line in review:
//
//	GATEHOUSE_ALL=1 go test ./internal/testkit/walk -args -update
package walk
