// Package simulation has a test that runs the pipeline, limits, sales, their memory and the breaker for hours
// of a fake clock, in front of a Redis that is slow, loses replies, delivers requests late and dies.
//
// A seed determines the script of faults and requests. The order in which goroutines run is Go's, so a seed
// that has failed repeats its script and not each of its steps.
//
// The test is not built with -race. After hours in a bubble of testing/synctest the race detector of Go 1.26
// crashes by itself, with "ThreadSanitizer: CHECK failed" (golang/go#78156). The same code runs under the
// race detector in the tests of its own packages.
package simulation
