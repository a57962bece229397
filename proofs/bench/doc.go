// Package bench measures Gatehouse's rate limits and those of other libraries side by side, in one run,
// against a floor: the least that any limiter of the kind has to do. Compare the ratios to the floor of the
// same run, not the times, which depend on the machine.
//
// The package is a module of its own, so that the other libraries stay out of Gatehouse's go.mod. The
// benchmark is a test, because the test helpers start the redis-server: `make bench` in the repository's
// root runs it in full and writes a file per part into results; a plain `go test` runs all of it for a few
// milliseconds each, to show that it works.
package bench
