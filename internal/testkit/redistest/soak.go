package redistest

import (
	"os"
	"testing"
)

// Soak reports whether the long versions of the tests run, as in make soak.
func Soak() bool { return os.Getenv("GATEHOUSE_SOAK") != "" }

// All reports whether the tests also run what make test leaves to CI: see docs/testing.md.
func All() bool { return os.Getenv("GATEHOUSE_ALL") != "" || Soak() }

// AlsoMini reports whether tests that run on real servers run on miniredis as well: where [All] is wanted, or
// there is no redis-server.
func AlsoMini() bool { return All() || !has(Program()) }

// LeftToCI skips a test that make test leaves to make all, and so to CI: it runs where [All] is wanted. It
// is for tests that need more than three seconds, or more processor time than what they show is worth at
// each change.
func LeftToCI(t testing.TB) {
	t.Helper()
	if !All() {
		t.Skip("left to make all")
	}
}
