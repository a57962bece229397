package script

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/lua"
)

// This file runs scripts whose answer waits for replicas. The script and WAIT run on the same connection,
// because WAIT covers only the writes of its own connection.

// ErrUnconfirmed is returned by calls of a guard that is [Acked] when too few replicas confirmed the change
// in time. The change was made on the server that ran the script, and is lost if that server is lost. It is
// safe to repeat the call with the same arguments: it makes no second change, and waits for the first one.
var ErrUnconfirmed = errors.New("script: too few replicas confirmed the change")

// Acks is what a call waits for after its script has run.
type Acks struct {
	// Replicas is how many replicas must confirm the change.
	Replicas int
	// Within is the longest wait for them.
	Within time.Duration
	// Needed reports whether the change of this reply has to last, and is waited for.
	Needed func(reply any) bool
}

// touchScript runs before WAIT. A script that replays its answer writes nothing, and WAIT on a connection
// without writes waits for nothing: without the touch, such an answer would be confirmed although no replica
// has the change.
var touchScript = New("touch", lua.Source("core/touch"), Idempotent)

// ackedCall is one call of a script that waits for replicas.
type ackedCall struct {
	runner *Runner
	call   *Call
	wait   Acks
	maybe  atomic.Bool // a sending may have run
}

// said is the reply to wait after, once it has arrived. A detached round may set it after its caller has
// left.
type said struct{ reply atomic.Pointer[any] }

// RunAcked runs the script of a call, which is [Idempotent], and waits for replicas. It uses Limit, Script,
// Keys and Args of the call. Beside an [ErrUnconfirmed] it returns the reply of the script.
func (r *Runner) RunAcked(ctx context.Context, what *Call, wait Acks) (any, error) {
	// The reply is kept when it arrives. An idle server ends a WAIT up to a tenth of a second late. If the
	// deadline passes meanwhile, the reply of the script is still known.
	c := ackedCall{runner: r, call: what, wait: wait}
	last := time.Now().Add(r.SettleTimeout() - what.Limit)
	var reply any
	var err error
	var known *any // the last reply to wait after, of any round
	for again := true; again; ctx, again = whileItMoves(ctx, what.Script, err, last) {
		round := &said{}
		reply, err = call(ctx, r, what.Limit, what.Keys[0],
			obeying(r.connection, func(ctx context.Context) (any, error) { return c.send(ctx, round) }),
			func() bool { return round.reply.Load() != nil })
		if heard := round.reply.Load(); heard != nil {
			known = heard
		}
	}
	if err != nil && known != nil {
		reply, err = *known, fmt.Errorf("%w: %w", ErrUnconfirmed, err)
	}
	return reply, r.failed(ctx, what.Script, err)
}

// send is Call.pass for calls that wait. go-redis cannot resend a command on a broken connection, and
// must not resend it on another one, because the WAIT would not follow it. So send retries itself, on a new
// connection for each try.
func (c *ackedCall) send(ctx context.Context, round *said) (any, error) {
	find := nodes(c.runner.rdb)
	end, _ := ctx.Deadline() // call sets one
	longest := time.Until(end) / 8
	for try, pause := 0, 2*time.Millisecond; ; try, pause = try+1, min(2*pause, longest) {
		server, err := find(ctx, c.call.Keys[0])
		if err != nil {
			return nil, err
		}
		reply, waited, err := c.try(ctx, server, round)
		switch {
		case err == nil || waited && !refusedForNow(err): // else the server has moved before it waited
			return reply, err
		case !refusedForNow(err) && (try >= server.Options().MaxRetries || !worthAnotherTry(err)),
			time.Until(end) < 2*pause: // the error is to be the server's, as in Call.pass
			return nil, notRun(err, c.maybe.Load())
		}
		if !refusedForNow(err) {
			c.maybe.Store(true)
			sentAgain(ctx)
		}
		c.runner.reloadTopology(ctx) // the client of one node does not follow its slots
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// try runs the script and WAIT on one connection. waited reports whether the script's reply was one to wait
// after, so that an error is one of the waiting.
func (c *ackedCall) try(ctx context.Context, server node, round *said) (reply any, waited bool, err error) {
	conn := server.Conn()
	defer func() { _ = conn.Close() }() // gives the connection back to the client's pool
	reply, err = manner{onClient{conn}, c.call.Script, AtMostOnce}.eval(ctx, c.call.Keys, c.call.Args)
	if err != nil || !c.wait.Needed(reply) {
		return reply, false, err
	}
	answer := reply
	round.reply.Store(&answer)
	c.maybe.Store(true)
	return reply, true, c.wait.on(ctx, conn, server.Options().ReadTimeout, c.call.Keys[0])
}

// on waits on the connection. It returns nil when enough replicas have all earlier writes of the connection.
func (w Acks) on(ctx context.Context, conn *redis.Conn, readTimeout time.Duration, key string) error {
	// An answer that arrives too late is lost, so the wait ends early.
	within := w.Within
	if deadline, ok := ctx.Deadline(); ok {
		within = min(within, time.Until(deadline)*3/4)
	}
	if readTimeout > 0 {
		within = min(within, readTimeout*3/4)
	}
	if within < time.Millisecond { // 0 would wait forever
		return context.DeadlineExceeded
	}
	// by its source: WAIT must not follow a NOSCRIPT
	touched := redis.NewIntCmd(ctx, "eval", touchScript.source, 1, key)
	got := redis.NewIntCmd(ctx, "wait", w.Replicas, within.Milliseconds())
	pipe := conn.Pipeline()
	_ = pipe.Process(ctx, touched)
	_ = pipe.Process(ctx, onceInt{got})
	switch _, err := pipe.Exec(ctx); {
	case err != nil:
		return err
	case touched.Val() == 0:
		return errors.New("the written record is gone")
	case got.Val() < int64(w.Replicas):
		return fmt.Errorf("%d of %d replicas in %v", got.Val(), w.Replicas, within.Round(time.Millisecond))
	}
	return nil
}
