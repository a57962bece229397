package deque

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// listenFor is how long one BLMOVE waits.
const listenFor = 5 * time.Second

// PopWait is Pop, but waits for a value while the list is empty. ErrEmpty means that there was none for the
// duration wait. PopWait returns at once when the context ends, with an error: a call with the same ID
// returns the value that this one may have taken.
func (l *Lists) PopWait(
	ctx context.Context, list string, end End, id string, wait time.Duration,
) (string, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		// The timer ends the waiting, but never a pop under way: that may have taken a value.
		value, err := l.Pop(ctx, list, end, id)
		if !errors.Is(err, ErrEmpty) {
			return value, err
		}
		b := l.listen(l.bell(list))
		select {
		case <-b.rung:
			if b.err != nil {
				return "", b.err
			}
		case <-timer.C:
			return "", ErrEmpty
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// bell is one BLMOVE, for all those in this process who wait for a list.
type bell struct {
	rung chan struct{} // closed when it has ended: ask the list again
	err  error         // set before that
}

// listen begins to wait until a list has values, unless this process does so already.
//
// The bell of a list is a list of one element, which exists while the list has values. BLMOVE from the bell
// to itself waits for the element and leaves it there. So nothing is lost with a process that dies or gives
// up after its bell has rung, and whoever comes too late for a push finds its bell.
func (l *Lists) listen(key string) *bell {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.bells[key]; b != nil {
		return b
	}
	b := &bell{rung: make(chan struct{})}
	l.bells[key] = b
	go func() {
		// Of the process, not of a request: others may wait too. It ends by itself when nobody does any more.
		ctx, cancel := context.WithTimeout(context.Background(), 2*listenFor)
		defer cancel()
		err := l.client.BLMove(ctx, key, key, "LEFT", "RIGHT", listenFor).Err()
		if errors.Is(err, redis.Nil) { // no value for so long
			err = nil
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.bells, key)
		b.err = err
		close(b.rung)
	}()
	return b
}
