package script

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestCallsOfAMomentEndByOneTimer: each has its own caller's values, and ends within its limit, by no more
// than a 16th early.
func TestCallsOfAMomentEndByOneTimer(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		const limit = 160 * time.Millisecond
		r := NewRunner(nil, Options{Deadline: limit})
		var ends []context.Context
		start := time.Now()
		for call := range 100 {
			begun := start.Add(time.Duration(call) * time.Millisecond)
			ctx, cancel := r.within(context.WithValue(context.Background(), key{}, call), begun, limit)
			cancel()
			if at, ok := ctx.Deadline(); !ok || at.Sub(begun) > limit || at.Sub(begun) < limit-limit/16 {
				t.Fatalf("call %d ends after %v; want up to a 16th less than %v", call, at.Sub(begun), limit)
			}
			if err, value := ctx.Err(), ctx.Value(key{}); err != nil || value != call {
				t.Fatalf("call %d: %v, value %v; want no error and its own value", call, err, value)
			}
			if n := len(ends); n == 0 || ends[n-1].Done() != ctx.Done() {
				ends = append(ends, ctx)
			}
		}
		for _, ctx := range ends {
			at, _ := ctx.Deadline()
			if <-ctx.Done(); !time.Now().Equal(at) || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				t.Errorf("ended at %v with %v; want at %v", time.Now(), ctx.Err(), at)
			}
		}
		if len(ends) < 10 || len(ends) > 25 {
			t.Errorf("%d timers for calls of 100 ms; want one for 5 to 10 ms", len(ends))
		}
	})
}

// TestWhoMayCancelHasATimer: also a call that may take longer than a check.
func TestWhoMayCancelHasATimer(t *testing.T) {
	const limit = 100 * time.Millisecond
	r := NewRunner(nil, Options{Deadline: limit})
	caller, leave := context.WithCancel(t.Context())
	ctx, cancel := r.within(caller, time.Now(), limit)
	defer cancel()
	leave()
	if !errors.Is(ctx.Err(), context.Canceled) {
		t.Errorf("the caller has left, and the call's context says %v", ctx.Err())
	}
	begun := time.Now()
	long, cancel := r.within(context.Background(), begun, r.SettleTimeout())
	defer cancel()
	if at, _ := long.Deadline(); !at.Equal(begun.Add(r.SettleTimeout())) {
		t.Errorf("a call for %v ends after %v", r.SettleTimeout(), at.Sub(begun))
	}
}
