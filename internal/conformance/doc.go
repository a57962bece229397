// Package conformance is one suite of requests that every adapter has to answer alike.
//
// The test of an adapter says how an application is built with its framework, and runs the suite:
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Framework{Build: build, Mount: mount})
//	}
//
// An [App] says in no framework's terms which routes there are, which rules guard them and what their handlers do. What the
// suite looks at is what anybody can see from outside: the answers, byte by byte, which handlers ran, and what the guards
// say afterwards has been taken. So it holds for adapters to other frameworks too; the package's own test runs it on the
// one that the documentation of nethttpmw.Pipeline shows.
package conformance
