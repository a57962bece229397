package pipeline

import (
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/pipeline/internal/mounted"
)

// AsServer makes Take take the program for a server until the test ends.
func AsServer(t *testing.T) {
	before := inTest
	inTest = func() bool { return false }
	t.Cleanup(func() { inTest = before })
}

// RunsOf returns for how many actors attempts of a guard are remembered as running.
func RunsOf(g core.Guard) int { return mounted.Running(g) }
