package echov5mw_test

import (
	"testing"

	"github.com/gatehouse-go/gatehouse/internal/testkit/conformance"
)

func TestHalfClosedConnectionIsCounted(t *testing.T) {
	conformance.HalfClosedConnectionIsCounted(t, conformance.Framework{Build: build})
}

func TestMiddlewareTimeoutDoesNotOversell(t *testing.T) {
	conformance.MiddlewareTimeoutDoesNotOversell(t, conformance.Framework{Build: build})
}

func TestSlowBodyDoesNotOutlastTheHold(t *testing.T) {
	conformance.SlowBodyDoesNotOutlastTheHold(t, conformance.Framework{Build: build})
}
