package limit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/lua"
)

// This file is about deployments that change the Window of a limit. Units that were taken under the former
// Window are in keys of their own. So the processes of a guard tell each other by which windows they count,
// and pass the windows of others along with each check, for as long as units count in them. The scripts take
// these units over.

const (
	// announceEvery is how often a process announces its windows, when it is asked to decide at all.
	announceEvery = 10 * time.Minute
	// announcedFor is for how long after an announcement units may be taken: it is longer, because a process may
	// be late.
	announcedFor = announceEvery + 5*time.Minute
)

// announce could be sent again, but nobody waits for that: the next check asks again.
var announce = core.NewScript("limit_windows", lua.LimitWindows, core.AtMostOnce)

// announced only reads: without windows the script announces none.
var announced = core.NewScript("limit_windows", lua.LimitWindows, core.Idempotent)

// former is what a process knows of the windows by which other processes count for the same guard, or counted
// until a moment ago. It is for fixed limits; a Func says itself what counts.
type former struct {
	known atomic.Pointer[others] // nil until a first answer came

	mu     sync.Mutex
	asking chan struct{} // closed when the call that is under way has ended; nil without one
}

// others is what an announcement was answered.
type others struct {
	sent   time.Time
	limits *limitSet // the guard's own, and those to pass along
	until  time.Time // when they need not be passed along any more
}

// current reports whether the answer is recent enough not to ask again.
func (o *others) current(now time.Time) bool {
	return o != nil && !now.Before(o.sent) && now.Sub(o.sent) < announceEvery
}

// withFormer returns the limits of the guard and, behind them, those of other windows in which units count.
// Before its first decision the process asks for these, within half of the deadline; callers at the same time
// wait for the same answer. While it cannot be had, the limits stand by themselves, and the next caller asks
// again.
func (l *limiter) withFormer(ctx context.Context, limits *limitSet) *limitSet {
	if l.by != nil {
		return limits
	}
	now := l.Engine().Now()
	o := l.former.known.Load()
	if !o.current(now) {
		o = l.announce(ctx, o, time.Now())
	}
	if o == nil || !now.Before(o.until) {
		return limits
	}
	return o.limits
}

// withAnnounced is withFormer for what takes no units: a process that only looks, or resets, announces
// nothing, since its windows may be those of nobody who decides. It keeps nothing either.
func (l *limiter) withAnnounced(ctx context.Context, limits *limitSet) *limitSet {
	if l.by != nil || l.former.known.Load().current(l.Engine().Now()) {
		return l.withFormer(ctx, limits)
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, l.Engine().Deadline()/2)
	defer cancel()
	heard, err := l.sendWindows(ctx, announced)
	if err != nil {
		if !errors.Is(err, core.ErrBreakerOpen) { // what the call for the actor will say as well
			_ = l.Observe(ctx, "windows", begun, core.Decision{Guard: l.Name()}, err)
		}
		return limits
	}
	return heard.limits
}

// announce asks for the windows of other processes, unless another caller does so already. A caller that has
// an earlier answer does not wait for that.
func (l *limiter) announce(ctx context.Context, last *others, begun time.Time) *others {
	f := l.former
	ctx, cancel := context.WithTimeout(ctx, l.Engine().Deadline()/2)
	defer cancel()
	f.mu.Lock()
	asking := f.asking
	if asking == nil && !f.known.Load().current(l.Engine().Now()) {
		f.asking = make(chan struct{})
		f.mu.Unlock()
		defer f.asked()
		heard, err := l.sendWindows(ctx, announce, l.limits.windows...)
		if err == nil {
			f.known.Store(heard)
		} else if !errors.Is(err, core.ErrBreakerOpen) { // what the check will say as well
			_ = l.Observe(ctx, "windows", begun, core.Decision{Guard: l.Name()}, err) // the decision goes on
		}
		return f.known.Load()
	}
	f.mu.Unlock()
	if asking != nil && last == nil {
		select {
		case <-asking:
		case <-ctx.Done():
		}
	}
	return f.known.Load()
}

// asked lets those go on who wait for the call that has ended.
func (f *former) asked() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.asking)
	f.asking = nil
}

// sendWindows announces windows, if there are any, and returns what there is beside the guard's own.
func (l *limiter) sendWindows(ctx context.Context, script *core.Script, own ...string) (*others, error) {
	now := l.Engine().Now()
	args := []any{announcedFor.Milliseconds(), l.Engine().ScriptNow(time.Millisecond)}
	for _, window := range own {
		args = append(args, window)
	}
	value, err := l.Engine().RunWithin(ctx, l.Engine().Deadline(), script, []string{l.windowsKey()}, args...)
	if err != nil {
		return nil, err
	}
	reply := core.ReadReply(value, 0, mostOthers)
	o := &others{sent: now, until: now}
	var windows []int64
	for reply.More() {
		window := reply.Number()
		if !slices.Contains(l.limits.windows, strconv.FormatInt(window, 10)) {
			windows = append(windows, window)
		}
		if !reply.More() {
			return nil, fmt.Errorf("unexpected reply %.100q: want pairs of numbers", fmt.Sprint(value))
		}
		if until := now.Add(reply.Duration(time.Millisecond)); until.After(o.until) {
			o.until = until
		}
	}
	if reply.Err != nil {
		return nil, reply.Err
	}
	o.limits = l.limits.with(windows)
	return o, nil
}

// mostOthers is the longest answer that is possible: deployments have changed the windows some hundred times.
const mostOthers = 1000

// windowsKey returns the key in which the processes of the guard announce their windows. No actor has this
// tag.
func (l *limiter) windowsKey() string { return l.Key("|", "windows") }
