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
	// Group names the calls that may be decided together: they have the same keys and arguments, but for
	// OwnKey and Own, and but for a moment among Args, of which the last call's counts.
	Group string
	// Keys are the first keys of Script. Nil stands for the keys of the call. RunJoined does not change them.
	Keys []string
	// OwnKey is a key that Script takes for this call, with the tag of the others; empty: it takes none. Those
	// of all calls follow Keys, in the order of arrival.
	OwnKey string
	// Args are the first arguments of Script. RunJoined does not change them.
	Args []any
	// Own is the argument that Script takes for this call; several if it is an []any. Those of all calls
	// follow Args, in the order of arrival.
	Own any
}

// RunJoined is [Runner.RunWithin] for calls that a script can decide several at a time, as those of many
// callers about one key. While two calls of the group are under way, those that arrive wait, up to 25 ms or a
// quarter of [WithDeadline], and then one run of j.Script decides them, up to 128 at a time. A call that
// finds fewer than two under way runs s at once, by its own goroutine. Each call has its own reply, deadline
// and cancellation; one that ends before the script is sent is not decided. The answers must be those that s
// gives to one call after the other at one moment.
//
// When the reply is lost, or the run is refused, all calls that were to be decided together return an error
// where s is AtMostOnce. Where s is [Idempotent], each call then runs s, as it is sent again when it goes by
// itself; j.Script must change nothing for a call that s has decided, and s nothing for one that j.Script
// has.
// With [WithoutSharedCalls] each call runs s.
func (r *Runner) RunJoined(
	ctx context.Context, limit time.Duration, j Joint, s *Script, keys []string, args ...any,
) (any, error) {
	c := Call{Runner: r, Script: s, Keys: keys, Args: args, Limit: limit, Joint: j}
	c.send(ctx)
	return c.Reply, c.Err
}

// joins has the lines of a runner, one per group with calls under way.
type joins struct {
	runner  *Runner
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
	keys, args := last.Keys, slices.Grow(slices.Clone(last.Args), len(calls))
	if last.OwnKey != "" {
		keys = slices.Grow(slices.Clone(keys), len(calls))
	}
	for _, c := range calls {
		if own, several := c.what.Own.([]any); several {
			args = append(args, own...)
		} else {
			args = append(args, c.what.Own)
		}
		if last.OwnKey != "" {
			keys = append(keys, c.what.OwnKey)
		}
	}
	reply, err := j.runner.RunWithin(ctx, time.Until(end), last.Script, keys, args...)
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
