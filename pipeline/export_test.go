package pipeline

import (
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
)

// AsServer makes Take take the program for a server until the test ends.
func AsServer(t *testing.T) {
	before := inTest
	inTest = func() bool { return false }
	t.Cleanup(func() { inTest = before })
}

// RunsOf returns for how many actors attempts of a guard are remembered as running.
func RunsOf(g core.Guard) (n int) {
	for i := range runs {
		runs[i].Lock()
		for key := range runs[i].of {
			if key.guard == any(g) {
				n++
			}
		}
		runs[i].Unlock()
	}
	return n
}
