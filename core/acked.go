package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/lua"
)

// This file runs scripts whose answer waits for replicas. A script runs on one connection, and WAIT follows on the same, since
// it waits for what its own connection has written.

// Durability says what has to have happened to a change before a guard says yes.
type Durability int

const (
	// Fast says yes when Redis has made the change. Redis sends it to its replicas afterwards, so a failover can lose it.
	Fast Durability = iota
	// Acked says yes when so many replicas have got the change as well. Each of them has it in its memory then. That is no
	// consensus: see SeckillOptions.Replicas.
	Acked
)

// ErrUnconfirmed is returned by calls of a guard that is Acked, when too few replicas have got the change in time. It was made
// on the server that was asked, and is lost if that one is. Calling again with the same arguments is safe: it is no second
// change, and waits for the first one.
var ErrUnconfirmed = errors.New("core: too few replicas have confirmed it")

// acks is what a call waits for when its script has run: so many replicas, for so long at most.
type Acks struct {
	Replicas int
	Within   time.Duration
}

// touchScript is run before WAIT. A script that answers a second time what it has answered before writes nothing, and WAIT on a
// connection that has written nothing waits for nothing: that yes would be one that no replica has heard of.
var touchScript = NewScript("touch", lua.Touch, Idempotent)

// node is the client of one server, of whose connections one can be kept for several commands: *redis.Client.
type node interface {
	Conn() *redis.Conn
	Options() *redis.Options
}

// nodes returns what finds the server that has a key, nil where the client can not tell, or can not keep a connection.
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

// ackedCall is one call of a script that waits for replicas.
type ackedCall struct {
	engine *Engine
	script *Script
	keys   []string
	args   []any
	yes    func(reply any) bool // whether to wait after it
	wait   Acks
	said   chan any // the yes, once it has come
}

// runAcked is run for scripts that may be sent again, and waits for replicas when the reply is a yes. Beside an ErrUnconfirmed it returns
// what the script replied.
func (e *Engine) RunAcked(
	ctx context.Context, limit time.Duration, wait Acks, yes func(reply any) bool, s *Script, keys []string, args ...any,
) (any, error) {
	// The yes is kept when it comes. A server that has nothing to do ends a WAIT up to a tenth of a second late, and a deadline that is
	// over by then does not make it unknown what the script has said.
	c := ackedCall{e, s, keys, args, yes, wait, make(chan any, 1)}
	reply, err := call(ctx, e, limit, keys[0], c.send, func() bool { return len(c.said) > 0 })
	if err != nil {
		select {
		case reply = <-c.said:
			err = fmt.Errorf("%w: %w", ErrUnconfirmed, err)
		default:
		}
	}
	return reply, e.failed(ctx, s, err)
}

// send is Engine.send for calls that wait. go-redis can not send a command again on a connection that is broken, and must not do so on
// another one behind the back of the WAIT that follows, so here is what does: with a connection of its own for each try.
func (c *ackedCall) send(ctx context.Context) (any, error) {
	find := nodes(c.engine.rdb)
	for try, pause := 0, 2*time.Millisecond; ; try, pause = try+1, 2*pause {
		server, err := find(ctx, c.keys[0])
		if err != nil {
			return nil, err
		}
		reply, said, err := c.try(ctx, server)
		switch {
		case err == nil || said:
			return reply, err
		case !refusedForNow(err) && (try >= server.Options().MaxRetries || !worthAnotherTry(err)):
			return nil, err
		}
		c.engine.reloadTopology(ctx) // a node's client does not follow its slots
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// try runs the script on one connection and waits on the same. said reports that the script has said yes, so that an error is one
// of the waiting.
func (c *ackedCall) try(ctx context.Context, server node) (reply any, said bool, err error) {
	conn := server.Conn()
	defer func() { _ = conn.Close() }() // gives the connection back to the client's pool
	reply, err = eval(ctx, conn, c.script, AtMostOnce, c.keys, c.args)
	if err != nil || !c.yes(reply) {
		return reply, false, err
	}
	c.said <- reply
	return reply, true, c.wait.on(ctx, conn, server.Options().ReadTimeout, c.keys[0])
}

// worthAnotherTry reports whether a script that may be sent again should be: when nothing was heard, or the server was none
// that decides.
func worthAnotherTry(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var answered redis.Error
	if !errors.As(err, &answered) {
		return true
	}
	for _, prefix := range []string{"LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS", "max number of clients"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}

// on waits on the connection, and returns nil when so many replicas have all that was written before.
func (w Acks) on(ctx context.Context, conn *redis.Conn, readTimeout time.Duration, key string) error {
	// An answer that comes too late is none, so it is asked for early.
	within := w.Within
	if deadline, ok := ctx.Deadline(); ok {
		within = min(within, time.Until(deadline)*3/4)
	}
	if readTimeout > 0 {
		within = min(within, readTimeout*3/4)
	}
	if within < time.Millisecond { // 0 would wait for ever
		return context.DeadlineExceeded
	}
	touched := redis.NewIntCmd(ctx, "eval", touchScript.source, 1, key) // by its text: WAIT must not follow a NOSCRIPT
	got := redis.NewIntCmd(ctx, "wait", w.Replicas, within.Milliseconds())
	pipe := conn.Pipeline()
	_ = pipe.Process(ctx, touched)
	_ = pipe.Process(ctx, onceInt{got})
	switch _, err := pipe.Exec(ctx); {
	case err != nil:
		return err
	case touched.Val() == 0:
		return errors.New("what was written is gone")
	case got.Val() < int64(w.Replicas):
		return fmt.Errorf("%d of %d in %v", got.Val(), w.Replicas, within.Round(time.Millisecond))
	}
	return nil
}

// onceInt is a command that go-redis does not send again, see onceCmd.
type onceInt struct{ *redis.IntCmd }

// NoRetry is asked by go-redis.
func (onceInt) NoRetry() bool { return true }
