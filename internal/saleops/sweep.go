package saleops

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// SweepMost is how many holds one call gives back at most, so that no call keeps Redis busy for long.
const SweepMost = 100

// SweepEvery is the method of that name of a guard of sales, with its name and its method Sweep.
func SweepEvery(
	ctx context.Context, name string, sweep func(ctx context.Context, item string) (int, error),
	interval time.Duration, items func() []string,
) error {
	if interval < time.Millisecond || items == nil {
		return fmt.Errorf("seckill: sweep %q every %v: pass an interval of a millisecond or more, "+
			"and a function that returns the items", name, interval)
	}
	var due []string
	pause := interval
	timer := time.NewTimer(rand.N(interval)) // processes that start together do not sweep together
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		if len(due) == 0 {
			due = items()
			pause = interval / time.Duration(max(len(due), 1))
		}
		for left := len(due) > 0; left; { // until nothing is left to sweep, or an error ends it
			swept, err := sweep(ctx, due[0])
			left = err == nil && swept >= SweepMost
		}
		if len(due) > 0 {
			due = due[1:]
		}
		timer.Reset(pause)
	}
}
