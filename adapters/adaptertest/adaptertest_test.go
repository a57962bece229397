package adaptertest_test

import (
	"testing"

	"github.com/gatehouse-go/gatehouse/adapters/adaptertest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func init() {
	adaptertest.Bare = adaptertest.Framework{
		Build: build,
		Mount: func(rules ...pipeline.Rule) { guard(rules...) },
	}
}

// TestPipelineIsEnoughForAnAdapter: what the documentation of pipeline.Pipeline shows is all that an adapter
// to another framework has to do. All checks run on a Redis inside the process here, as they do for authors.
func TestPipelineIsEnoughForAnAdapter(t *testing.T) { adaptertest.Run(t, adaptertest.Bare) }
