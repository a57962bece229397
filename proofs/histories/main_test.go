package histories

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{})
	redistest.Main(m)
}
