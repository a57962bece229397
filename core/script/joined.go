package script

import (
	"context"
	"slices"
	"sync"
	"time"
)

// This file lets calls of the same moment about one thing be decided by one run of a script.

// Join says how a script decides several calls together: see [Runner.RunJoined].
type Join struct {
	// Script decides them. It is [AtMostOnce]. Unless Replies says otherwise, its reply is an array of one
	// array or text for each call, in order. Any other reply is the reply to each call.
	Script *Script
	// Replies splits the reply to Script: it returns the reply to each of n calls, in order. If it returns
	// another number of replies, the reply to Script is the reply to each call. Nil: the replies are the
	// elements of an array. It is a pure function. RunJoined calls the function of the last call.
	Replies func(reply any, n int) []any
	// Group names the calls that may be decided together. They have the same keys and arguments, except Own. A
	// moment among Args may also differ: the last call's counts.
	Group string
	// Keys are the keys of Script. Nil stands for the keys of the call. RunJoined does not change them.
	Keys []string
	// Args are the first arguments of Script. RunJoined does not change them.
	Args []any
	// Own is the argument of Script for this call, or several as an []any. The arguments of all calls follow
	// Args, in the order of arrival.
	Own any
}

// joins has the queues of a runner, one per group with calls under way.
type joins struct {
	run         func(context.Context, time.Duration, *Script, []string, ...any) (any, error)
	longestWait time.Duration
	mu          sync.Mutex // of the queues too
	queues      map[string]*queue[Join]
	spare       []*queue[Join] // that no call uses, to spare lone callers an allocation
}

// spareQueues is how many queues are kept for reuse.
const spareQueues = 16

// enter enters the queue of the group. A call that waits has to end within the limit.
func (j *joins) enter(
	ctx context.Context, limit time.Duration, what *Join,
) (*queue[Join], *queued[Join]) {
	j.mu.Lock()
	defer j.mu.Unlock()
	q := j.queues[what.Group]
	if q == nil {
		q = j.unused()
		q.name = what.Group
		j.queues[q.name] = q
	}
	return q, q.enter(ctx, limit, *what)
}

// unused returns a queue for a group. The caller holds mu.
func (j *joins) unused() *queue[Join] {
	if n := len(j.spare); n > 0 {
		q := j.spare[n-1]
		j.spare = j.spare[:n-1]
		return q
	}
	return &queue[Join]{mu: &j.mu, longestWait: j.longestWait, send: j.send, unused: j.drop}
}

// drop gives up a queue that no call uses. The caller holds mu.
func (j *joins) drop(q *queue[Join]) {
	delete(j.queues, q.name)
	if len(j.spare) < spareQueues {
		j.spare = append(j.spare, q)
	}
}

// send has one run of the script decide the calls.
func (j *joins) send(calls []*queued[Join]) {
	ctx, cancel := contextOf(calls)
	defer cancel()
	end, _ := ctx.Deadline()
	last := calls[len(calls)-1].what
	args := slices.Grow(slices.Clone(last.Args), len(calls))
	for _, c := range calls {
		if own, several := c.what.Own.([]any); several {
			args = append(args, own...)
		} else {
			args = append(args, c.what.Own)
		}
	}
	reply, err := j.run(ctx, time.Until(end), last.Script, last.Keys, args...)
	replies := elements
	if last.Replies != nil {
		replies = last.Replies
	}
	each := replies(reply, len(calls))
	for i, c := range calls {
		c.reply, c.err = reply, err
		if len(each) == len(calls) {
			c.reply = each[i]
		}
	}
}

// elements returns the elements of an array that has the reply to each call.
func elements(reply any, _ int) []any {
	replies, _ := reply.([]any)
	if slices.ContainsFunc(replies, isNoReply) {
		return nil
	}
	return replies
}

// isNoReply reports whether a value in the reply of a script for several calls is not the reply to one.
func isNoReply(value any) bool {
	switch value.(type) {
	case []any, string:
		return false
	}
	return true
}
