package nethttpmw

import "testing"

// AsServer makes Take take the program for a server until the test ends.
func AsServer(t *testing.T) {
	before := inTest
	inTest = func() bool { return false }
	t.Cleanup(func() { inTest = before })
}
