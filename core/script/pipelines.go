package script

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file lets calls of the same moment to one server share a pipeline: see WithoutSharedCalls and queue.
// A command never depends on another: each has its own reply, delivery and caller. A caller may leave at
// any time.

const (
	// batchedBytes is how long a command may be to share a pipeline: others would wait for a long one.
	batchedBytes = 4 << 10
	// queuesMost is how many servers have a queue before idle queues are dropped.
	queuesMost = 1000
)

// pipelines has the queues of a runner, one per server. A batch of a queue is a pipeline.
type pipelines struct {
	alone       *connection // by which a call goes by itself
	server      func(ctx context.Context, key string) (*redis.Client, error)
	follows     bool          // the client finds the server again that has a key
	longestWait time.Duration // that a call waits

	mu     sync.RWMutex
	queues map[string]*queue[sending]
}

// sending is a command on its way to a server.
type sending struct {
	server *redis.Client
	cmd    *redis.Cmd // its batch's, until it has come back
}

// newPipelines returns nil where the calls of the runner's client are not shared: a client of another type
// may do more in Process than send a command.
func newPipelines(c *connection, longest time.Duration) *pipelines {
	s := &pipelines{alone: c, longestWait: longest, queues: map[string]*queue[sending]{}}
	switch rdb := c.rdb.(type) {
	case *redis.Client:
		s.server = func(context.Context, string) (*redis.Client, error) { return rdb, nil }
	case *redis.ClusterClient:
		s.server, s.follows = rdb.MasterForKey, true
	case *redis.Ring:
		s.server = func(_ context.Context, key string) (*redis.Client, error) {
			return rdb.GetShardClientForKey(key)
		}
	default:
		return nil
	}
	return s
}

// of returns the queue of a server.
func (s *pipelines) of(addr string) *queue[sending] {
	s.mu.RLock()
	q := s.queues[addr]
	s.mu.RUnlock()
	if q != nil {
		return q
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q = s.queues[addr]; q != nil {
		return q
	}
	if len(s.queues) >= queuesMost {
		maps.DeleteFunc(s.queues, func(_ string, q *queue[sending]) bool {
			q.mu.Lock()
			defer q.mu.Unlock()
			return q.isIdle()
		})
	}
	q = &queue[sending]{mu: &sync.Mutex{}, longestWait: s.longestWait, send: send}
	s.queues[addr] = q
	return q
}

// process implements processor. It sends the command once, by itself or with others.
func (s *pipelines) process(ctx context.Context, cmd *redis.Cmd, _ Delivery) (any, error) {
	q, what := s.queueOf(ctx, cmd)
	if q == nil {
		return s.alone.process(ctx, cmd, AtMostOnce)
	}
	q.mu.Lock()
	w := q.enter(ctx, 0, what)
	q.mu.Unlock()
	if w == nil {
		defer q.leave()
		return s.alone.process(ctx, cmd, AtMostOnce)
	}
	reply, err := s.arrived(ctx, w)
	if err == nil {
		q.reuse(w)
	}
	return reply, err
}

// queueOf returns the queue of the server that has the key of a command, or nil where it goes by itself.
func (s *pipelines) queueOf(ctx context.Context, cmd *redis.Cmd) (*queue[sending], sending) {
	key, _ := cmd.Args()[3].(string)
	server, err := s.server(ctx, key)
	if err != nil || !fits(cmd.Args()) {
		return nil, sending{}
	}
	return s.of(server.Options().Addr), sending{server, cmd}
}

// arrived returns the reply to a command in a pipeline. If the key has moved, it sends the command again to
// the server that has it.
func (s *pipelines) arrived(ctx context.Context, w *queued[sending]) (any, error) {
	reply, _, err := w.wait()
	if err == nil || !s.follows || !isElsewhere(err) {
		return reply, err
	}
	// The server has not run it. The client follows, with a command of its own: this one has an error already.
	again := redis.NewCmd(ctx, w.what.cmd.Args()...)
	again.SetFirstKeyPos(3)
	return s.alone.process(ctx, again, AtMostOnce)
}

// fits reports whether a command may be in a pipeline with others: it is short, and go-redis can certainly
// write it. A command that go-redis cannot write would fail the others.
func fits(args []any) bool {
	length := 0
	for _, arg := range args {
		switch arg := arg.(type) {
		case string:
			length += len(arg)
		case int, int64, bool:
		default:
			return false
		}
	}
	return length <= batchedBytes
}

// send sends the calls in one pipeline, each of them once.
func send(calls []*queued[sending]) {
	ctx, cancel := contextOf(calls)
	defer cancel()
	pipe := calls[0].what.server.Pipeline()
	for _, c := range calls {
		_ = pipe.Process(ctx, onceCmd{c.what.cmd}) // never fails
	}
	_, err := pipe.Exec(ctx)
	receive(calls, err)
}

// receive sets what came back for calls in a pipeline that ended with err. A server that hangs up behind an
// answer has read no further, so that is the answer to the calls behind it too.
func receive(calls []*queued[sending], err error) {
	var last error
	for _, c := range calls {
		c.reply, c.err = received(c, err, last)
		if last == nil && verdictOn(c.err).hangsUp {
			last = c.what.cmd.Err()
		}
	}
}

// received returns the reply to one of the calls. last is the answer after which the server hung up.
func received(c *queued[sending], err, last error) (any, error) {
	reply, own := c.what.cmd.Result()
	switch {
	case reply != nil: // also where go-redis gave the command the error of one behind it
		return reply, nil
	case last != nil && isBroken(own):
		own = last
	case own == nil: // a hook has not sent the pipeline
		own = err
	}
	if own == nil || isAnswer(own) && !isUnready(own) {
		return nil, own
	}
	return nil, batchError{own, c.batch}
}
