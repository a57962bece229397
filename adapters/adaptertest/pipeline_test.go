package adaptertest

import (
	"testing"

	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// The tests of this package are about what the pipeline does in the same way for every framework. They play
// the scenes of the checks, with the adapter of the example, which does nothing else.

// Bare is the adapter of the example, which is in a package of its own.
var Bare Framework

// onMini runs a test that moves the clock.
func onMini(t *testing.T, test func(*scene)) {
	t.Helper()
	test(newScene(t, Bare, redistest.Mini))
}

// onRedis runs a test on redis-server, and on miniredis where redistest.AlsoMini says so.
func onRedis(t *testing.T, test func(*scene)) {
	t.Helper()
	if redistest.AlsoMini() {
		t.Run("miniredis", func(t *testing.T) { test(newScene(t, Bare, redistest.Mini)) })
	}
	t.Run("redis", func(t *testing.T) { test(newScene(t, Bare, redistest.Single)) })
}
