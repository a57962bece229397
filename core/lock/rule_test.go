package lock

import (
	"net/http"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// TestARuleWithALockCannotFailLocally: a lock that each process has for itself is none.
//
// Promise: The guard works inside one process. It has no local mode in an outage.
func TestARuleWithALockCannotFailLocally(t *testing.T) {
	g := New(guardtest.NewEngine(redistest.Backend{}), "l", Options{})
	if outage := g.Traits().Outage; outage != core.FailClosed {
		t.Errorf("the default is %v", outage)
	}
	guardtest.WantPanic(t, "core.FailLocal", func() {
		nethttpmw.HTTP(pipeline.Rule{Guard: g, Who: keyfuncs.IP(), OnOutage: core.FailLocal,
			What: func(*keyfuncs.Request) (string, error) { return "p", nil }})(http.NotFoundHandler())
	})
}
