package script

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// This file says what the client of the application can do.

// Client is the part of a go-redis client that a [Runner] needs. *redis.Client (with Sentinel too),
// *redis.ClusterClient, *redis.Ring and *redis.AutoPipeliner implement it. The caller owns the client: a
// Runner never dials, closes or reconfigures it.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// connection is the application's client and its known properties.
type connection struct {
	rdb           Client // nil: no Redis
	address       string // of the server or servers, for errors; "" where the client does not say
	obeysDeadline bool   // it ends a call when its context ends
	resends       bool   // it is known to resend commands whose reply was lost
	sendsOnce     bool   // it is known not to
}

func connectionOf(rdb Client) *connection {
	does, known := resends(rdb)
	return &connection{rdb: rdb, address: addressOf(rdb), obeysDeadline: obeysDeadline(rdb), resends: does,
		sendsOnce: known && !does}
}

// addressOf returns where the servers of a client are.
func addressOf(rdb Client) string {
	switch c := rdb.(type) {
	case interface{ Options() *redis.Options }:
		return c.Options().Addr
	case interface{ Options() *redis.ClusterOptions }:
		return strings.Join(c.Options().Addrs, ",")
	case interface{ Options() *redis.RingOptions }:
		return strings.Join(slices.Sorted(maps.Values(c.Options().Addrs)), ",")
	}
	return ""
}

// resends reports whether the client is known to resend commands. A client that does not say may do so too.
func resends(rdb Client) (does, known bool) {
	switch c := rdb.(type) {
	case interface{ Options() *redis.Options }:
		return c.Options().MaxRetries > 0, true
	case interface{ Options() *redis.ClusterOptions }:
		return c.Options().MaxRedirects > 0, true
	case interface{ Options() *redis.RingOptions }:
		return c.Options().MaxRetries > 0, true
	}
	return false, false
}

// obeysDeadline reports whether the client ends a call when its context ends. go-redis does so only by
// option.
func obeysDeadline(rdb Client) bool {
	switch c := rdb.(type) {
	case interface{ Options() *redis.Options }:
		return c.Options().ContextTimeoutEnabled
	case interface{ Options() *redis.ClusterOptions }:
		return c.Options().ContextTimeoutEnabled
	case interface{ Options() *redis.RingOptions }:
		return c.Options().ContextTimeoutEnabled
	}
	return false
}

// node is the client of one server, which can reserve a connection for several commands: *redis.Client.
type node interface {
	Conn() *redis.Conn
	Options() *redis.Options
}

// nodes returns a function that finds the server that has a key. It returns nil when the client cannot find
// servers or cannot reserve a connection.
func nodes(rdb Client) func(ctx context.Context, key string) (node, error) {
	switch c := rdb.(type) {
	case interface {
		MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	}: // *redis.ClusterClient
		return func(ctx context.Context, key string) (node, error) { return c.MasterForKey(ctx, key) }
	case interface {
		GetShardClientForKey(key string) (*redis.Client, error)
	}: // *redis.Ring
		return func(_ context.Context, key string) (node, error) { return c.GetShardClientForKey(key) }
	case node:
		return func(context.Context, string) (node, error) { return c, nil }
	}
	return nil
}

// readsFromReplicas is a client that may send commands which only read to replicas: *redis.ClusterClient.
// Scripts it sends to primaries.
type readsFromReplicas interface {
	Options() *redis.ClusterOptions
	TxPipelined(ctx context.Context, fn func(redis.Pipeliner) error) ([]redis.Cmder, error)
}

// named says in an error which server it is about. The texts of timeouts and of lost connections do not.
func (c *connection) named(node string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) || isAnswer(err) && !isUnready(err) {
		return err
	}
	if node == "" {
		node = c.address
	}
	if node == "" {
		return err
	}
	dial := (*net.OpError)(nil)
	if isDial(err) && errors.As(err, &dial) && errors.Is(dial, syscall.ECONNREFUSED) {
		if dial.Addr != nil && dial.Addr.String() != node {
			node += ": " + dial.Addr.String() // such as a server that Sentinel has named
		}
		return &refusedError{node, err}
	}
	return fmt.Errorf("redis at %s: %w", node, err)
}

// refusedError is the error of a server that is not running, as a rule. Its text says what to do.
type refusedError struct {
	at  string
	err error
}

func (e *refusedError) Error() string {
	return "redis at " + e.at + " refused the connection: start it there, or correct the address"
}

func (e *refusedError) Unwrap() error { return e.err }

// detached calls f in a goroutine and returns its result, or the context's error as soon as the context ends.
// Then f continues until the client's own timeouts end it. It is for clients that ignore their context.
func detached[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f(ctx)
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		select {
		case r := <-done: // f ended at the same time
			return r.value, r.err
		default:
		}
		var zero T
		return zero, ctx.Err()
	}
}

// obeying makes f return when its context ends, also where the client ignores it, and when a hook panics.
func obeying[T any](c *connection, f func(context.Context) (T, error)) func(context.Context) (T, error) {
	rescued := func(ctx context.Context) (value T, err error) {
		defer rescue(&err)
		return f(ctx)
	}
	if c.obeysDeadline {
		return rescued
	}
	return func(ctx context.Context) (T, error) { return detached(ctx, rescued) }
}

// suspectTopology makes a cluster client reload its slots when a server is unreachable. go-redis does so on
// MOVED, but not when the primary of a slot is gone: it would ask the dead one for up to a minute after the
// replica has taken over (go-redis issue 3979). The client reloads in the background, one load at a time.
func (c *connection) suspectTopology(ctx context.Context, err error) {
	var answered redis.Error
	if !errors.As(err, &answered) {
		c.reloadTopology(ctx)
	}
}

func (c *connection) reloadTopology(ctx context.Context) {
	if cluster, ok := c.rdb.(interface{ ReloadState(context.Context) }); ok {
		cluster.ReloadState(ctx)
	}
}
