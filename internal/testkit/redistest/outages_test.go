package redistest_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

func TestOutages(t *testing.T) {
	redistest.LeftToCI(t)
	t.Parallel()
	o := redistest.StartOutages(t)
	rdb := o.NewClient(true)
	set := func(wait time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		return rdb.Set(ctx, "k", "v", time.Minute).Err()
	}
	for _, kind := range redistest.OutageKinds {
		if err := set(time.Minute); err != nil {
			t.Fatalf("before %s: %v", kind, err)
		}
		end := o.Begin(kind)
		wait := 5 * time.Second // go-redis tries again, and then says what it was
		if kind == "hanging" || kind == "vanished" {
			wait = 200 * time.Millisecond
		}
		err := set(wait)
		well := map[string]bool{
			"stopped": errors.Is(err, syscall.ECONNREFUSED),
			"hanging": errors.Is(err, context.DeadlineExceeded),
			// of the connections that were cut
			"resetting": errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF),
			"loading":   err != nil && strings.HasPrefix(err.Error(), "LOADING"),
			"readonly":  err != nil && strings.HasPrefix(err.Error(), "READONLY"),
			"repointed": err != nil && strings.HasPrefix(err.Error(), "READONLY"),
			"vanished":  errors.Is(err, context.DeadlineExceeded),
			"full":      err != nil && strings.HasPrefix(err.Error(), "OOM"),
		}
		if !well[kind] {
			t.Errorf("%s: %v", kind, err)
		}
		end()
		redistest.Eventually(t, 20*time.Second, func() bool { return set(time.Second) == nil },
			"the server is well after "+kind)
	}
}
