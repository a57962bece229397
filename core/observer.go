package core

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core/script"
)

// Observer is told of every call of an engine's guards, for metrics, traces and logs. Observe runs on the
// path of the request and from many goroutines at once: it must be fast and safe for concurrent use. If it
// panics, the logger is told, and the request goes on. [Observers] combines several observers.
//
// The packages below observe have observers for Prometheus, for OpenTelemetry, and for denials in slog.
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// Event is one call of a guard that has ended, or a breaker that has opened or closed.
type Event struct {
	// Guard is the guard's name. It is empty for a breaker, and for an undo that the engine gave up (Op
	// settle, [ErrUnsettled]).
	Guard string
	// Op is the operation. These are decisions:
	//
	//	check        Guard.Check
	//	check_local  LocalGuard.CheckLocal, by the policy FailLocal, for a check that failed
	//	check_wait   Wait and WaitLocal of a rate limit; without a Reason if its caller did not wait any longer
	//
	// These are the others. A guard of the application may have more: see kit.Description.
	//
	//	settle       Guard.Settle, and an undo in the background of a check that failed; with ErrUnsettled when
	//	             it was given up
	//	refund spend peek reset        limit
	//	give_back                      limit; units of a lease that were not used and that no call took along
	//	strike ban unban status        bans
	//	retract tally verify repair audit void    votes
	//	used reset                     quota
	//	wait renew peek evict          semaphore
	//	wait renew peek break          lock
	//	reset                          idempotency
	//	schedule claim release extend ack nack cancel reschedule retry discard find counts peek    delay
	//	recovered dead panic    delay; Cost of the attempt is the number of tasks: taken back because their
	//	             lease was over, dead, whose handler panicked
	//	open confirm cancel sweep status restock close verify repair discard events outbox    seckill
	//	create refund verify            redpacket
	//	peek set_capacity pause close open leave    waitingroom
	//	refund spend peek export ended restore    budget
	//	decide withdraw decided audit    package control
	//	pause                          package transport; with an error where the partner's answer makes no sense
	//	breaker                        see Breaker
	//	refuse                         see Key
	Op string
	// Decision is the answer, where Op has one.
	Decision Decision
	// Err is the error of the call, or nil. For a breaker that has opened it is the error of the last call.
	// Its text may contain keys and addresses, so it is not for clients. For labels of metrics, use
	// ErrorKind.
	Err error
	// Took is how long the call took. For a breaker that has closed it is how long the breaker was open.
	Took time.Duration
	// Key names the cause of an adapter's refusal without a decision (Op refuse, see kit.Refused). It is the
	// rule's who, what, which, id, cost or origin, its deny or allow list, or the guard, which found the
	// attempt invalid. The reason is in Decision. Function is the key function as the program has it, such as
	// User("uid"), and empty if the application wrote it. Both come from the program, not from clients.
	Key, Function string
	// Breaker is the change of a breaker. It is nil for calls.
	Breaker *script.BreakerChange
}

// Decided reports whether the event is a decision about an attempt, so that counting such events counts
// attempts. A check that failed is not a decision. The local decision in its place is.
func (e Event) Decided() bool {
	if e.Err != nil {
		return false
	}
	switch e.Op {
	case "check", "check_local":
		return true
	}
	return e.Op == "check_wait" && e.Decision.Reason != ""
}

// Source says who decided, for labels of metrics. It is the Source of the [Decision], except in two cases. It
// is "none" where nothing was decided or the decision needed no counter. It is "shadow" for an attempt that
// passes whatever the answer is (see [Attempt].Shadow).
func (e Event) Source() string {
	switch {
	case e.Decision.Attempt.Shadow && e.Decided():
		return "shadow"
	case e.Decision.Source == "":
		return "none"
	}
	return string(e.Decision.Source)
}

// NearLimit reports whether an attempt was allowed and left less than a fifth of the limit, so that an actor
// who continues at this rate will be denied. It applies only to rate limits and quotas: the last vote of a
// poll or the last unit of a stock is there to be taken.
func (e Event) NearLimit() bool {
	d := &e.Decision
	// at most 2^53
	return e.Decided() && !d.Attempt.Shadow && d.Reason == ReasonOK && d.Window > 0 && d.Remaining*5 < d.Limit
}

// ErrorKind sorts Err into a few kinds, for labels of metrics:
//
//	unsettled     an attempt could not be settled or undone, and the engine gave up (ErrUnsettled)
//	backlog       rejected, because too many attempts are waiting to be settled (ErrTooManyPending)
//	invalid       the attempt makes no sense (ErrInvalid)
//	rejected      a call by name is not possible now, such as on an unknown sale (ErrNotFound, ErrNotNow)
//	gone          an allowed attempt could not be committed, because its claim no longer exists (ErrGone)
//	unconfirmed   too few replicas confirmed a change of an Acked guard in time (ErrUnconfirmed)
//	breaker_open  not sent, because earlier calls failed (ErrBreakerOpen)
//	canceled      the caller cancelled the call
//	timeout       no answer in time
//	unready       Redis answered that it cannot work now, or not for this client: LOADING, READONLY,
//	              CLUSTERDOWN, NOAUTH, WRONGPASS, NOPERM for all scripts and the like; or a proxy that it
//	              has no server
//	full          Redis has no memory left (OOM)
//	script        any other error that Redis answered
//	connection    there was no connection, or it broke
//	other         anything else, such as an error of one of the application's functions
//
// ErrorKind is empty when there is no error.
func (e Event) ErrorKind() string {
	if e.Err == nil {
		return ""
	}
	for _, k := range errorKinds {
		if k.matches(e.Err) {
			return k.name
		}
	}
	return "other"
}

// errorKinds are the kinds of ErrorKind. The first match counts: an ErrUnsettled wraps the error of the last
// try, an ErrUnconfirmed may wrap a timeout, and a timeout may be a net.Error.
var errorKinds = []struct {
	name    string
	matches func(error) bool
}{
	{"unsettled", isAny(ErrUnsettled)},
	{"backlog", isAny(ErrTooManyPending)},
	{"invalid", isAny(ErrInvalid)},
	{"rejected", isAny(ErrNotFound, ErrNotNow)},
	{"gone", isAny(ErrGone)},
	{"unconfirmed", isAny(ErrUnconfirmed)},
	{"breaker_open", isAny(ErrBreakerOpen)},
	{"unready", isAnswered("unready")},
	{"full", isAnswered("full")},
	{"script", isAnswered("script")},
	{"canceled", isAny(context.Canceled)},
	{"timeout", isAny(context.DeadlineExceeded, redis.ErrPoolTimeout)},
	{"timeout", func(err error) bool { network, ok := asNetwork(err); return ok && network.Timeout() }},
	{"connection", func(err error) bool { _, ok := asNetwork(err); return ok }},
	{"connection", isAny(io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, redis.ErrClosed)},
}

// isAny returns a function that reports whether an error is one of the targets.
func isAny(targets ...error) func(error) bool {
	return func(err error) bool {
		return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
	}
}

// isAnswered returns a function that reports whether a server has answered with an error of a kind.
func isAnswered(kind string) func(error) bool {
	return func(err error) bool { return script.ErrorKind(err) == kind }
}

func asNetwork(err error) (network net.Error, ok bool) {
	ok = errors.As(err, &network)
	return network, ok
}

// Observers returns an observer that passes each event to all of the given observers, one after the other and
// in order. It panics when there are none, or when one is nil.
func Observers(all ...Observer) Observer {
	if len(all) == 0 || slices.Contains(all, nil) {
		panic("core: Observers: pass at least one observer, and none that is nil")
	}
	return observers(slices.Clone(all))
}

type observers []Observer

func (all observers) Observe(ctx context.Context, e Event) {
	for _, o := range all {
		o.Observe(ctx, e)
	}
}

// LogErrors returns the default observer of an engine. It logs errors to slog, at most one per second, so
// that an outage does not flood the log. Use it to log errors in addition to another observer:
//
//	core.WithObserver(core.Observers(core.LogErrors(), metrics))
//
// It also logs requests that an adapter has refused without a decision (Op refuse), such as those without a
// login: at level Info the first refusal of each guard, reason, Key and Function, and then one per minute
// with the number in between. The record contains nothing that clients send.
//
// It uses the logger of its engine (see [WithLogger]), so each engine should have its own. It does not log
// mistakes of callers, nor calls by name that are not possible now.
func LogErrors() Observer { return &logErrors{} }

type logErrors struct {
	log atomic.Pointer[slog.Logger] // nil: slog.Default() of the moment

	mu      sync.Mutex
	last    time.Time
	skipped int

	refusals refusals
}

// logBy gives an engine's logger, if it has one, to the observers that LogErrors made.
func logBy(o Observer, logger *slog.Logger) {
	switch o := o.(type) {
	case *logErrors:
		if logger != nil {
			o.log.Store(logger)
		}
	case observers:
		for _, each := range o {
			logBy(each, logger)
		}
	}
}

func (o *logErrors) logger() *slog.Logger {
	if logger := o.log.Load(); logger != nil {
		return logger
	}
	return slog.Default()
}

func (o *logErrors) Observe(ctx context.Context, e Event) {
	if e.Op == "refuse" {
		o.refusals.log(ctx, o.logger(), e)
		return
	}
	// The caller gets the errors of kinds invalid and rejected. They must not displace an outage in the log.
	// The engine itself logs breakers.
	if kind := e.ErrorKind(); e.Breaker != nil || kind == "" || kind == "invalid" || kind == "rejected" {
		return
	}
	o.mu.Lock()
	now := time.Now()
	if now.Sub(o.last) < time.Second {
		o.skipped++
		o.mu.Unlock()
		return
	}
	skipped := o.skipped
	o.last, o.skipped = now, 0
	o.mu.Unlock()
	o.logger().WarnContext(ctx, "gatehouse: a guard's call failed",
		"guard", e.Guard, "op", e.Op, "err", e.Err, "took", e.Took, "errors_not_logged", skipped)
}
