package script

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// movingClient loses the reply to the first command, refuses others while a slot moves, for as long as the
// first call takes, and then has no memory.
type movingClient struct {
	first time.Time // the deadline of the first call
	sent  int
}

type refusal string

func (r refusal) Error() string { return string(r) }
func (r refusal) RedisError()   {}

func (c *movingClient) Process(ctx context.Context, cmd redis.Cmder) error {
	end, _ := ctx.Deadline()
	switch c.sent++; {
	case c.sent == 1:
		c.first = end
		cmd.SetErr(io.EOF)
	case end.Equal(c.first):
		cmd.SetErr(refusal("TRYAGAIN Multiple keys request during rehashing of slot"))
	default:
		cmd.SetErr(refusal("OOM command not allowed when used memory > 'maxmemory'."))
	}
	return cmd.Err()
}

// TestWhatMayHaveRunBeforeItsSlotMovedIsUndone: the reply to the first sending was lost, the slot moved for
// longer than one call, and the next call was refused. The refusal does not say that nothing has run.
func TestWhatMayHaveRunBeforeItsSlotMovedIsUndone(t *testing.T) {
	client := &movingClient{}
	e := NewRunner(client, Options{Deadline: 50 * time.Millisecond, NoBreaker: true})
	e.resends, e.obeysDeadline = true, true
	s := New("claims", "return 1", Idempotent)
	_, err := e.RunWithin(t.Context(), e.Deadline(), s, []string{"{a}"})
	if !isOOM(err) || client.sent < 3 {
		t.Fatalf("%d sent: %v", client.sent, err)
	}
	if errors.As(err, new(notRunError)) {
		t.Errorf("%v: is taken for a call that has not run", err)
	}
}

func isOOM(err error) bool {
	var refused redis.Error
	return errors.As(err, &refused) && redis.HasErrorPrefix(refused, "OOM")
}
