package redistest

import "os"

// Soak reports whether the long versions of the tests run, as in make soak.
func Soak() bool { return os.Getenv("GATEHOUSE_SOAK") != "" }

// All reports whether the tests also run what make test leaves to CI: see docs/testing.md.
func All() bool { return os.Getenv("GATEHOUSE_ALL") != "" || Soak() }

// AlsoMini reports whether tests that run on real servers run on miniredis as well: where [All] is wanted, or
// there is no redis-server.
func AlsoMini() bool { return All() || !has(Program()) }
