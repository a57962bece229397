package nethttpmw_test

import (
	"testing"

	"github.com/gatehouse-go/gatehouse/internal/testkit/conformance"
)

func TestHalfClosedConnectionIsCounted(t *testing.T) {
	conformance.HalfClosedConnectionIsCounted(t, conformance.Framework{Build: buildMux})
}

func TestMiddlewareTimeoutDoesNotOversell(t *testing.T) {
	conformance.MiddlewareTimeoutDoesNotOversell(t, conformance.Framework{Build: buildMux})
}

func TestSlowBodyDoesNotOutlastTheHold(t *testing.T) {
	conformance.SlowBodyDoesNotOutlastTheHold(t, conformance.Framework{Build: buildMux})
}
