package redistest

import "os"

// Soak reports whether the long versions of the tests run, as in make soak.
func Soak() bool { return os.Getenv("GATEHOUSE_SOAK") != "" }
