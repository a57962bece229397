package nethttpmw_test

import (
	"testing"

	"github.com/gatehouse-go/gatehouse/internal/testkit/conformance"
)

// Promise (Endings): A half-closed connection does not undo an answered claim.
func TestHalfClosedConnectionIsCounted(t *testing.T) {
	conformance.HalfClosedConnectionIsCounted(t, conformance.Framework{Build: buildMux})
}

// Promise (Endings): Middleware that ends the context does not oversell.
func TestMiddlewareTimeoutDoesNotOversell(t *testing.T) {
	conformance.MiddlewareTimeoutDoesNotOversell(t, conformance.Framework{Build: buildMux})
}

// Promise (Endings): A slow body does not outlast the hold.
func TestSlowBodyDoesNotOutlastTheHold(t *testing.T) {
	conformance.SlowBodyDoesNotOutlastTheHold(t, conformance.Framework{Build: buildMux})
}
