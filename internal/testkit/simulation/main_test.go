package simulation

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// quiet is a log for what goes wrong on purpose.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{})
	redistest.Main(m)
}
