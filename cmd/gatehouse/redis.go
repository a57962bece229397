package main

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

	"github.com/gatehouse-go/gatehouse/core"
)

// redisFlags are the flags of commands that ask a Redis.
type redisFlags struct {
	url     string
	cluster bool
	prefix  string
	timeout time.Duration
	address string // where connect has connected to, for messages
	looks   bool   // the command only looks, and Redis refuses what it would write
}

func (f *redisFlags) register(fs *flag.FlagSet) {
	fs.StringVar(&f.url, "redis", "", "the `URL` of the Redis: redis://user:password@host:6379/0, rediss:// with TLS,\n"+
		"with ?master_name=NAME that of a sentinel, with ?addr=HOST:PORT or -cluster that of\n"+
		"a cluster; without the flag, REDIS_URL is read, which hides the password from ps")
	fs.BoolVar(&f.cluster, "cluster", false, "the Redis is a cluster")
	fs.StringVar(&f.prefix, "prefix", "gatehouse", "the `prefix` of the application's keys (core.WithPrefix)")
	fs.DurationVar(&f.timeout, "timeout", 5*time.Second, "how long to wait for Redis")
}

// connect makes a client, asks whether there is a Redis, and makes an engine. The caller closes the client.
// Errors name the address and the cause, and never the URL, which may contain a password.
func (f *redisFlags) connect(ctx context.Context, e *env) (*core.Engine, redis.UniversalClient, error) {
	if f.url == "" {
		f.url = e.getenv("REDIS_URL")
	}
	switch {
	case f.url == "":
		return nil, nil, usagef("no Redis is named: pass -redis redis://127.0.0.1:6379, or set REDIS_URL")
	case f.timeout <= 0:
		return nil, nil, usagef("-timeout is %v: it must be more than 0", f.timeout)
	}
	rdb, address, err := f.client()
	f.address = address
	if err != nil {
		return nil, nil, usagef("-redis or REDIS_URL is not the URL of a Redis (%w): "+
			"write it as redis://user:password@127.0.0.1:6379/0", withoutURL(err))
	}
	if f.looks {
		rdb.AddHook(readOnly{})
	}
	ping, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	if err := rdb.Ping(ping).Err(); err != nil && !strings.HasPrefix(err.Error(), "NOPERM") {
		_ = rdb.Close()
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		late := net.Error(nil)
		if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &late) && late.Timeout() {
			err = fmt.Errorf("no answer within %v", f.timeout)
		}
		return nil, nil, fmt.Errorf("cannot use the Redis at %s: %w", address, err)
	}
	engine, err := newEngine(rdb, f.prefix, f.timeout, silent{})
	if err != nil {
		_ = rdb.Close()
		return nil, nil, err
	}
	return engine, rdb, nil
}

// newEngine makes an engine that waits for Redis and reports errors to the caller only.
func newEngine(
	rdb redis.UniversalClient, prefix string, timeout time.Duration, observer core.Observer,
) (engine *core.Engine, err error) {
	err = caught(func() {
		engine = core.New(rdb, core.WithPrefix(prefix), core.WithDeadline(timeout), core.WithoutBreaker(),
			core.WithoutSharedCalls(), core.WithRefusalMemory(0), core.WithObserver(observer))
	})
	return engine, err
}

// silent is an observer that reports nothing.
type silent struct{}

// Observe implements core.Observer.
func (silent) Observe(context.Context, core.Event) {}

// caught calls a function that panics on mistakes of set-up, and returns such a mistake as one of the command
// line.
func caught(f func()) (err error) {
	defer func() {
		if mistake := recover(); mistake != nil {
			if text, ok := mistake.(string); ok {
				err = usageError{errors.New(text)}
				return
			}
			panic(mistake) // a mistake of the program
		}
	}()
	f()
	return nil
}

// client makes the client that the URL asks for, and returns the address for messages. It sends nothing.
func (f *redisFlags) client() (rdb redis.UniversalClient, address string, err error) {
	u, err := url.Parse(f.url)
	if err != nil {
		return nil, "", err
	}
	query := u.Query()
	switch {
	case query.Has("master_name"):
		o, err := redis.ParseFailoverURL(f.url)
		if err != nil {
			return nil, "", err
		}
		o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries, o.DialTimeout = true, -1, 1, f.timeout
		return redis.NewFailoverClient(o), fmt.Sprintf("%s (sentinels %s)", o.MasterName,
			strings.Join(o.SentinelAddrs, ", ")), nil
	case f.cluster || query.Has("addr"):
		o, err := redis.ParseClusterURL(f.url)
		if err != nil {
			return nil, "", err
		}
		o.ContextTimeoutEnabled, o.DialerRetries, o.DialTimeout = true, 1, f.timeout
		return redis.NewClusterClient(o), strings.Join(o.Addrs, ", "), nil
	}
	o, err := redis.ParseURL(f.url)
	if err != nil {
		return nil, "", err
	}
	o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries, o.DialTimeout = true, -1, 1, f.timeout
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
