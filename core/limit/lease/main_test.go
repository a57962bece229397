package lease

import (
	"testing"

	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// process is what the test binary does in place of its tests, if a test has started it; or nil.
var process func()

func TestMain(m *testing.M) {
	if process != nil {
		process()
		return
	}
	redistest.Main(m)
}
