package connect

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Invalidations is the channel of Redis for keys that have changed.
const Invalidations = "__redis__:invalidate"

// UntrackedError is the refusal of a server to tell which keys change.
type UntrackedError struct{ Cause error }

func (e *UntrackedError) Error() string {
	return fmt.Sprintf("CLIENT TRACKING, by which Redis tells of changes: %v", e.Cause)
}

// Unwrap returns the cause.
func (e *UntrackedError) Unwrap() error { return e.Cause }

// Tracking returns a client of the same server whose subscribers to [Invalidations] are told which keys with
// a prefix change (CLIENT TRACKING with BCAST, Redis 6.0). With RESP 2, a connection that names itself hears
// it as a subscriber. A connection that cannot be tracked fails with an [UntrackedError].
func Tracking(client *redis.Client, prefix string) *redis.Client {
	o := *client.Options()
	o.Protocol = 2
	o.OnConnect = func(ctx context.Context, c *redis.Conn) error {
		id, err := c.ClientID(ctx).Result()
		if err == nil {
			err = c.Do(ctx, "client", "tracking", "on", "redirect", id, "bcast", "prefix", prefix).Err()
		}
		if err != nil {
			return &UntrackedError{err}
		}
		return nil
	}
	return redis.NewClient(&o)
}
