// Package simulation has a test that runs the pipeline, limits, sales, their memory and the breaker for hours
// of a fake clock, in front of a Redis that is slow, loses replies, delivers requests late and dies.
//
// A seed determines the script of faults and requests. The order in which goroutines run is Go's, so a seed
// that has failed repeats its script and not each of its steps.
package simulation
