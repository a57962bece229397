// Package connect connects commands to the Redis that their flags name.
package connect

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-go/gatehouse/core"
)

// Redis has the flags of commands that ask a Redis.
type Redis struct {
	URL     string
	cluster bool
	Prefix  string // of the application's keys
	Timeout time.Duration
	Address string // to which Connect has connected, for messages
	Looks   bool   // the command only looks, and Redis refuses what it would write
}

// Register registers the flags.
func (f *Redis) Register(fs *flag.FlagSet) {
	fs.StringVar(&f.URL, "redis", "", "the `URL` of the Redis: redis://user:password@host:6379/0, rediss:// with TLS,\n"+
		"with ?master_name=NAME that of a sentinel, with ?addr=HOST:PORT or -cluster that of\n"+
		"a cluster; without the flag, REDIS_URL is read, which hides the password from ps")
	fs.BoolVar(&f.cluster, "cluster", false, "the Redis is a cluster")
	fs.StringVar(&f.Prefix, "prefix", "gatehouse", "the `prefix` of the application's keys (core.WithPrefix)")
	fs.DurationVar(&f.Timeout, "timeout", 5*time.Second, "how long to wait for Redis")
}

// Connect makes a client, asks whether there is a Redis, and makes an engine. The caller closes the client.
// Errors name the address and the cause, and never the URL, which may contain a password.
func (f *Redis) Connect(ctx context.Context, e *cli.Env) (*core.Engine, redis.UniversalClient, error) {
	rdb, address, err := f.Client(e)
	if err != nil {
		return nil, nil, err
	}
	f.Address = address
	if f.Looks {
		rdb.AddHook(Hook(onlyRead))
	}
	ping, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	if err := rdb.Ping(ping).Err(); err != nil && !strings.HasPrefix(err.Error(), "NOPERM") {
		_ = rdb.Close()
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		late := net.Error(nil)
		if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &late) && late.Timeout() {
			err = fmt.Errorf("no answer within %v", f.Timeout)
		}
		return nil, nil, fmt.Errorf("cannot use the Redis at %s: %w", address, err)
	}
	engine, err := NewEngine(rdb, f.Prefix, f.Timeout)
	if err != nil {
		_ = rdb.Close()
		return nil, nil, err
	}
	return engine, rdb, nil
}

// Client makes the client that the flags ask for, and returns its address. It sends nothing.
func (f *Redis) Client(e *cli.Env) (rdb redis.UniversalClient, address string, err error) {
	if f.URL == "" {
		f.URL = e.Getenv("REDIS_URL")
	}
	switch {
	case f.URL == "":
		return nil, "", cli.Usagef("no Redis is named: pass -redis redis://127.0.0.1:6379, or set REDIS_URL")
	case f.Timeout <= 0:
		return nil, "", cli.Usagef("-timeout is %v: it must be more than 0", f.Timeout)
	}
	if rdb, address, err = f.client(); err != nil {
		return nil, "", cli.Usagef("-redis or REDIS_URL is not the URL of a Redis (%w): "+
			"write it as redis://user:password@127.0.0.1:6379/0", withoutURL(err))
	}
	return rdb, address, nil
}

// NewEngine makes an engine that waits for Redis and remembers nothing. It logs errors to slog.Default, which
// cli.Main silences: the caller has them.
func NewEngine(
	rdb redis.UniversalClient, prefix string, timeout time.Duration, more ...core.Option,
) (engine *core.Engine, err error) {
	err = cli.Caught(func() {
		engine = core.New(rdb, append(more, core.WithPrefix(prefix), core.WithDeadline(timeout),
			core.WithoutBreaker(), core.WithoutSharedCalls(), core.WithRefusalMemory(0))...)
	})
	return engine, err
}

// client makes the client that the URL asks for, and returns the address for messages. It sends nothing.
func (f *Redis) client() (rdb redis.UniversalClient, address string, err error) {
	u, err := url.Parse(f.URL)
	if err != nil {
		return nil, "", err
	}
	query := u.Query()
	switch {
	case query.Has("master_name"):
		o, err := redis.ParseFailoverURL(f.URL)
		if err != nil {
			return nil, "", err
		}
		o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries, o.DialTimeout = true, -1, 1, f.Timeout
		return redis.NewFailoverClient(o), fmt.Sprintf("%s (sentinels %s)", o.MasterName,
			strings.Join(o.SentinelAddrs, ", ")), nil
	case f.cluster || query.Has("addr"):
		o, err := redis.ParseClusterURL(f.URL)
		if err != nil {
			return nil, "", err
		}
		o.ContextTimeoutEnabled, o.DialerRetries, o.DialTimeout = true, 1, f.Timeout
		return redis.NewClusterClient(o), strings.Join(o.Addrs, ", "), nil
	}
	o, err := redis.ParseURL(f.URL)
	if err != nil {
		return nil, "", err
	}
	o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries, o.DialTimeout = true, -1, 1, f.Timeout
	return redis.NewClient(o), o.Addr, nil
}

// withoutURL returns the cause of an error without the URL in it.
func withoutURL(err error) error {
	if bad := (*url.Error)(nil); errors.As(err, &bad) {
		err = bad.Err
		if escape := url.EscapeError(""); errors.As(err, &escape) {
			return errors.New("a % in it that escapes nothing: write it as %25")
		}
		if strings.Contains(err.Error(), "port") {
			return errors.New("its port is not a number; a password with / ? # @ in it must be escaped")
		}
	}
	return err
}
