package script

import (
	"context"
	"sync/atomic"
)

type sendingsKey struct{}

// WatchSendings returns a context for the calls of one check, and a function that reports whether a call
// was sent again because a reply was lost. The earlier sending may still arrive, after the answer to the
// later one. Then a claim that is given back, and a refused attempt, need a tombstone: see [TombstoneTTL].
// It sees a client's own retries only if the client announces them by an Options method like go-redis's.
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
