package script

import (
	"context"
	"sync/atomic"
)

type sendingsKey struct{}

// WatchSendings returns a context for the calls of one check, and a function that reports whether one of them
// was sent more than once, since the reply to an earlier sending was lost. The earlier one may still arrive,
// after the answer to the later one. So a claim that is given back, and an attempt that was refused, then
// need a tombstone: see [TombstoneTTL]. What a client resends by itself is not seen where the client does not
// say that it does, by an Options method as those of go-redis.
func WatchSendings(ctx context.Context) (watched context.Context, again func() bool) {
	sent := new(atomic.Bool)
	return context.WithValue(ctx, sendingsKey{}, sent), sent.Load
}

// sentAgain notes that a script is sent once more.
func sentAgain(ctx context.Context) {
	if sent, ok := ctx.Value(sendingsKey{}).(*atomic.Bool); ok {
		sent.Store(true)
	}
}
