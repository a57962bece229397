package background_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/background"
)

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if err := background.Wait(t.Context(), func() {}); err != nil {
			t.Errorf("with nothing to wait for: %v", err)
		}
		begun := time.Now()
		begin(func() { <-time.After(time.Hour) })
		begin(func() { <-time.After(time.Minute); runtime.Goexit() })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := background.Wait(ctx, func() {}); !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "2 attempts") {
			t.Errorf("Wait for a second: %v", err)
		}
		hurried := 0
		if err := background.Wait(t.Context(), func() { hurried++ }); err != nil || time.Since(begun) < time.Hour ||
			time.Since(begun) > 61*time.Minute {
			t.Errorf("Wait: %v after %v", err, time.Since(begun))
		}
		if hurried < 2 {
			t.Errorf("hurried %d times, want each time that it looks", hurried)
		}
	})
}

func begin(f func()) {
	background.Begin()
	go func() {
		defer background.End()
		f()
	}()
}
