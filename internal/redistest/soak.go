package redistest

import "os"

// Soak reports whether the long versions of the tests run, as in make soak.
func Soak() bool { return os.Getenv("GATEHOUSE_SOAK") != "" }

// All reports whether the tests also run what make test leaves to CI: see docs/testing.md.
func All() bool { return os.Getenv("GATEHOUSE_ALL") != "" || Soak() }
