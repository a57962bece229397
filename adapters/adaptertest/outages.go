package adaptertest

import (
	"context"
	"fmt"
	"net"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/votes"
)

// down makes an engine whose Redis does not exist.
func (s *scene) down() *core.Engine {
	s.Helper()
	rdb := redis.NewClient(&redis.Options{
		// No port is sure to stay closed while other tests start servers.
		Dialer: func(_ context.Context, network, addr string) (net.Conn, error) {
			return nil, fmt.Errorf("dial %s %s: %w", network, addr, syscall.ECONNREFUSED)
		},
		Addr: "127.0.0.1:6379", MaxRetries: -1, DialerRetries: 1,
	})
	s.Cleanup(func() { _ = rdb.Close() }) // it has no connection
	return newEngine(rdb, s.backend.Prefix)
}

// polls is a VoteOptions.Find: the polls that cannot be looked up, and why. All others do not exist.
type polls map[string]error

func (p polls) find(_ context.Context, poll string) (votes.Poll, error) {
	if err := p[poll]; err != nil {
		return votes.Poll{}, err
	}
	return votes.Poll{}, votes.ErrNoPoll
}
