package redistest

import (
	"cmp"
	"os"
)

// ServerEnv names the environment variable that says which server the tests start: a redis-server or
// valkey-server, by name or path. The default is redis-server.
const ServerEnv = "GATEHOUSE_REDIS_SERVER"

// Program returns the server program that the tests start: see [ServerEnv].
func Program() string { return cmp.Or(os.Getenv(ServerEnv), "redis-server") }
