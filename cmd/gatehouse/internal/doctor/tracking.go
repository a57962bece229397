package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/connect"
)

// toldWithin is how long a server may take at most to tell of a change.
const toldWithin = 5 * time.Second

const remedyTracking = "give the command a user of its own, with the lines of docs/running-on.md. Where " +
	"there is no CLIENT TRACKING, run `gatehouse bans` without -follow from time to time"

// tracks finds out whether the server tells which keys change. Only gatehouse bans -follow needs that.
func (s *server) tracks(ctx context.Context) error {
	const item = "tracking"
	key, err := s.key(ctx, "{tracking}")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, min(s.timeout, toldWithin))
	defer cancel()
	rdb := connect.Tracking(s.Client, s.prefix)
	defer func() { _ = rdb.Close() }()
	subscription := rdb.Subscribe(ctx, connect.Invalidations)
	defer func() { _ = subscription.Close() }()
	if _, err = subscription.Receive(ctx); err == nil {
		if err := s.Set(ctx, key, "", s.timeout).Err(); err != nil {
			s.report(stateUnseen, item, fmt.Sprintf("CLIENT TRACKING is allowed; SET, which tries it: %v", err))
			return nil
		}
		defer s.Del(ctx, key)
		err = hears(ctx, subscription, key)
	}
	if err != nil {
		s.missing = append(s.missing, "CLIENT TRACKING")
		s.report(stateNote, item, fmt.Sprintf("%v: gatehouse bans -follow does not work", err))
		s.found[len(s.found)-1].Remedy = remedyTracking
		return nil
	}
	s.report(stateOK, item, "Redis tells which keys change: gatehouse bans -follow works")
	return nil
}

// hears waits until a subscription is told that a key has changed.
func hears(ctx context.Context, subscription *redis.PubSub, key string) error {
	for {
		said, err := subscription.Receive(ctx)
		if late := net.Error(nil); errors.As(err, &late) && late.Timeout() {
			return errors.New("CLIENT TRACKING is accepted, but changes are not told")
		}
		if err != nil {
			return err
		}
		if message, ok := said.(*redis.Message); ok && slices.Contains(message.PayloadSlice, key) {
			return nil
		}
	}
}
