package pipeline

import (
	"context"
	"net/http"
	"time"
)

// detached is a request's context without its cancellation: settling outlives the request. It is what
// context.WithoutCancel returns, except that neither making it nor asking it for a value allocates. (That one
// allocates each time it is asked.) It holds the request, which is smaller than its context.
type detached struct{ of *http.Request }

func (*detached) Deadline() (deadline time.Time, ok bool) { return deadline, false }
func (*detached) Done() <-chan struct{}                   { return nil }
func (*detached) Err() error                              { return nil }

// Value returns a value of the request's context, but does not tell context.Cause who cancelled it.
func (d *detached) Value(key any) any {
	if key == causeKey {
		return nil
	}
	return d.of.Context().Value(key)
}

// causeKey is the key by which context.Cause finds who cancelled a context.
var causeKey = func() any {
	asked := keyTaker{Context: context.Background()}
	_ = context.Cause(&asked)
	return asked.key
}()

// keyTaker is a context that keeps the last key it was asked for.
type keyTaker struct {
	context.Context
	key any
}

func (t *keyTaker) Value(key any) any {
	t.key = key
	return nil
}
