package limit

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
)

// undecided is a client whose server takes its time, and leaves each decision to the long script.
type undecided struct {
	*redis.Client
	takes time.Duration
}

func (u *undecided) Process(ctx context.Context, cmd redis.Cmder) error {
	select {
	case <-time.After(u.takes):
	case <-ctx.Done():
		cmd.SetErr(ctx.Err())
		return ctx.Err()
	}
	reply := allowed
	if cmd.Args()[1] != slidingLogScript.check.SHA() {
		reply = []any{int64(2)}
	}
	cmd.(interface{ SetVal(any) }).SetVal(reply)
	return nil
}

// TestTwoScriptsOfOneCheckShareItsDeadline: the script that decides in place of a short one had
// a deadline of its own, so a check could take two of them.
func TestTwoScriptsOfOneCheckShareItsDeadline(t *testing.T) {
	const deadline = 100 * time.Millisecond
	for name, l := range map[string]Limit{
		"a call each": PerMinute(100),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rdb := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
				defer func() { _ = rdb.Close() }()
				server := &undecided{Client: rdb}
				e := core.New(server, core.WithDeadline(deadline))
				g := NewSlidingWindow(e, "undecided", l)
				check := func() (core.Decision, time.Duration, error) {
					begun := time.Now()
					d, err := g.Check(t.Context(), core.Attempt{Actor: "ann"})
					return d, time.Since(begun), err
				}
				server.takes = deadline * 2 / 5
				if d, took, err := check(); err != nil || took != deadline*4/5 {
					t.Fatalf("after %v: %+v, %v; want an answer after %v", took, d, err, deadline*4/5)
				}
				// The process goes by its own clock here: after which the short script is asked first again.
				time.Sleep(2 * time.Second) //nolint:forbidigo // see above
				server.takes = deadline * 3 / 5
				if d, took, err := check(); !errors.Is(err, context.DeadlineExceeded) || took != deadline {
					t.Errorf("after %v: %+v, %v; want an end at the deadline, %v", took, d, err, deadline)
				}
			})
		})
	}
}
