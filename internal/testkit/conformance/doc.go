// Package conformance is one suite of requests that every adapter must answer alike.
//
// The test of an adapter says how to build an application with its framework, and runs the suite:
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Framework{Build: build, Mount: mount})
//	}
//
// An [App] describes, independently of any framework, which routes exist, which rules guard them and what
// their handlers do. The suite checks only what is visible from outside: the answers, byte by byte, which
// handlers ran, and what the guards then say was taken. So it suits adapters to other frameworks too; the
// package's own test runs it on the adapter that the documentation of pipeline.Pipeline shows.
package conformance
