package redistest

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// options are go-redis's defaults, without two commands that it would send on every new connection and that
// the servers under test do not know.
func options(addrs ...string) *redis.UniversalOptions {
	return &redis.UniversalOptions{
		Addrs:                    addrs,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// patient makes a client wait for a server that a busy machine lets stand still: by default it gives up
// after 3 s.
func patient(opt *redis.UniversalOptions) *redis.UniversalOptions {
	opt.DialTimeout, opt.ReadTimeout, opt.WriteTimeout = time.Minute, time.Minute, time.Minute
	return opt
}

// closing closes the client when the test ends.
func closing[C redis.UniversalClient](t testing.TB, c C) C {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
			t.Errorf("redistest: closing a client: %v", err)
		}
	})
	return c
}

// OptionsOf returns new options for a client of the server at an address, like [Backend.Options]. It is for
// processes that a test starts.
func OptionsOf(addr string) *redis.UniversalOptions { return options(addr) }
