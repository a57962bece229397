package pipeline_test

import (
	"testing"

	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
