package script

import (
	"context"
	"slices"
	"sync"
	"time"
)

// This file lets calls of the same moment about one thing be decided by one run of a script.

// Joint says how a script decides several calls together: see [Runner.RunJoined].
type Joint struct {
	// Script decides them. It is [AtMostOnce], and replies with an array that has an array or a text for each
	// call, in order, and nothing else, unless Replies says otherwise. Another reply is the reply to each call.
	Script *Script
	// Replies takes the reply to Script apart: it returns the reply to each of n calls, in order. Where it
	// returns another number of replies, the reply to Script is the reply to each call. Nil: the replies are
	// the elements of an array. It is a pure function; RunJoined calls that of the call that came last.
	Replies func(reply any, n int) []any
	// Group names the calls that may be decided together: they have the same keys and arguments, but for Own,
	// and but for a moment among Args, of which the last call's counts.
	Group string
	// Keys are the keys of Script. Nil stands for the keys of the call. RunJoined does not change them.
	Keys []string
	// Args are the first arguments of Script. RunJoined does not change them.
	Args []any
	// Own is the argument that Script takes for this call. Those of all calls follow Args, in the order of
	// arrival.
	Own any
}

// joins has the lines of a runner, one per group with calls under way.
type joins struct {
	run     func(context.Context, time.Duration, *Script, []string, ...any) (any, error)
	longest time.Duration
	mu      sync.Mutex // of the lines too
	lines   map[string]*line[Joint]
	spare   []*line[Joint] // that no call uses, to spare lone callers an allocation
}

// spareLines is how many lines are kept for reuse.
const spareLines = 16

// enter enters the line of the group. A call that waits has to end within the limit.
func (j *joins) enter(
	ctx context.Context, limit time.Duration, what *Joint,
) (*line[Joint], *waiting[Joint]) {
	j.mu.Lock()
	defer j.mu.Unlock()
	l := j.lines[what.Group]
	if l == nil {
		l = j.unused()
		l.name = what.Group
		j.lines[l.name] = l
	}
	return l, l.enter(ctx, limit, *what)
}

// unused returns a line for a group. The caller holds mu.
func (j *joins) unused() *line[Joint] {
	if n := len(j.spare); n > 0 {
		l := j.spare[n-1]
		j.spare = j.spare[:n-1]
		return l
	}
	return &line[Joint]{mu: &j.mu, longest: j.longest, send: j.send, idle: j.drop}
}

// drop gives up a line that no call uses. The caller holds mu.
func (j *joins) drop(l *line[Joint]) {
	delete(j.lines, l.name)
	if len(j.spare) < spareLines {
		j.spare = append(j.spare, l)
	}
}

// send has one run of the script decide the calls.
func (j *joins) send(calls []*waiting[Joint]) {
	ctx, cancel := together(calls)
	defer cancel()
	end, _ := ctx.Deadline()
	last := calls[len(calls)-1].what
	args := slices.Grow(slices.Clone(last.Args), len(calls))
	for _, c := range calls {
		args = append(args, c.what.Own)
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
