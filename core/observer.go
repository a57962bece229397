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
)

// Observer hears of everything that the guards of an engine do: for metrics, traces and logs. Observe is called on the
// path of the request, so it must be quick, and from many goroutines at once. Of several, Observers makes one.
//
// Ready ones are in the packages below observe: for Prometheus, for OpenTelemetry, and for denials in slog.
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// Event is one call of a guard that has ended, or a breaker that has opened or closed.
type Event struct {
	// Guard is the guard's name; empty for a breaker, and for an undo that the engine has given up (Op settle,
	// ErrUnsettled).
	Guard string
	// Op is what was called. Decisions are
	//
	//	check        Guard.Check
	//	check_local  LocalGuard.CheckLocal, by the outage policy of that name, for a check that has failed
	//
	// and all others are the following. An application's own guard may have more: see Description.Ops.
	//
	//	settle       Guard.Settle, and an undo in the background of a check that has failed; with ErrUnsettled when it is given up
	//	refund peek reset              rate limits
	//	strike ban unban status        Bans
	//	retract tally verify repair audit void    Votes
	//	used reset                     Quota
	//	reset                          Idempotency
	//	open confirm cancel sweep status restock close reconcile events outbox    Seckill
	//	create refund verify           RedPacket
	//	breaker                        Breaker says what
	Op string
	// Decision is the answer, where Op has one.
	Decision Decision
	// Err is what went wrong, nil when nothing did; for a breaker that has opened what the last call failed with. It may name keys
	// and addresses: not for clients. ErrorKind is for labels.
	Err error
	// Took is how long the call took; for a breaker that has closed how long it was open.
	Took time.Duration
	// Breaker is what became of a breaker; nil for calls.
	Breaker *BreakerChange
}

// Decided reports whether the event is a decision about an attempt, so that counting such events counts attempts: a check that has
// failed is none, and what decided in its place is one.
func (e Event) Decided() bool {
	return e.Err == nil && (e.Op == "check" || e.Op == "check_local")
}

// Source says who decided, for labels: the Decision's Source, "none" where nobody had to be asked or nothing was decided, and "shadow" for
// an attempt that goes on whatever the answer is (see Attempt.Shadow), whoever decided that.
func (e Event) Source() string {
	switch {
	case e.Decision.Attempt.Shadow && e.Decided():
		return "shadow"
	case e.Decision.Source == "":
		return "none"
	}
	return string(e.Decision.Source)
}

// NearLimit reports whether an attempt was allowed and has left less than a fifth of the limit, so that whoever goes on like that
// will be refused. Rate limits and quotas only: of a poll's votes or a sale's stock the last one is there to be taken.
func (e Event) NearLimit() bool {
	d := &e.Decision
	return e.Decided() && !d.Attempt.Shadow && d.Reason == ReasonOK && d.Window > 0 && d.Remaining*5 < d.Limit // at most 2^53
}

// ErrorKind sorts Err into a few kinds, for labels of metrics:
//
//	unsettled     given up: an attempt could not be settled or undone (ErrUnsettled)
//	backlog       refused, because too many attempts wait to be settled (ErrTooManyPending)
//	invalid       the attempt makes no sense (ErrInvalidAttempt)
//	rejected      a call by name is not possible now: no such sale, packet or audit, still open, too few left
//	gone          a buyer was let through, and the reservation could not be confirmed any more (ErrGone)
//	unconfirmed   too few replicas have got a change of an Acked guard in time (ErrUnconfirmed)
//	breaker_open  not sent, because calls before it have failed (ErrBreakerOpen)
//	canceled      the caller has given it up
//	timeout       no answer in time
//	unready       Redis says that it can not work now: LOADING, READONLY, CLUSTERDOWN and the like
//	full          Redis has no memory left (OOM)
//	script        any other error that Redis answers
//	connection    no connection, or one that broke
//	other         anything else, such as an error of a function of the application's
//
// It is empty when there is no error.
func (e Event) ErrorKind() string {
	var answer redis.Error
	var network net.Error
	is := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(e.Err, target) })
	}
	switch {
	case e.Err == nil:
		return ""
	case is(ErrUnsettled):
		return "unsettled"
	case is(ErrTooManyPending):
		return "backlog"
	case is(ErrInvalid):
		return "invalid"
	case is(ErrNotFound, ErrNotNow):
		return "rejected"
	case is(ErrGone):
		return "gone"
	case is(ErrUnconfirmed):
		return "unconfirmed"
	case is(ErrBreakerOpen):
		return "breaker_open"
	case errors.As(e.Err, &answer) && isUnready(e.Err):
		return "unready"
	case errors.As(e.Err, &answer) && redis.HasErrorPrefix(e.Err, "OOM"):
		return "full"
	case errors.As(e.Err, &answer):
		return "script"
	case is(context.Canceled):
		return "canceled"
	case is(context.DeadlineExceeded, redis.ErrPoolTimeout), errors.As(e.Err, &network) && network.Timeout():
		return "timeout"
	case errors.As(e.Err, &network), is(io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, redis.ErrClosed):
		return "connection"
	}
	return "other"
}

// Observers returns an observer that tells all of these, one after the other, in the order given.
func Observers(all ...Observer) Observer {
	if len(all) == 0 || slices.Contains(all, nil) {
		panic("core: Observers: give at least one observer, and none that is nil")
	}
	return observers(slices.Clone(all))
}

type observers []Observer

func (all observers) Observe(ctx context.Context, e Event) {
	for _, o := range all {
		o.Observe(ctx, e)
	}
}

// LogErrors returns the observer that an engine has when it is given none: errors go to slog, at most one a second, so that an
// outage does not drown the log. Pass it on where errors shall be logged beside what another observer does:
//
//	core.WithObserver(core.Observers(core.LogErrors(), metrics))
//
// It logs where the engine does that it is given to, see WithLogger; each engine should have one of its own.
func LogErrors() Observer { return &logErrors{} }

type logErrors struct {
	log atomic.Pointer[slog.Logger] // nil: slog.Default() of the moment

	mu      sync.Mutex
	last    time.Time
	skipped int
}

// logBy has what LogErrors has made log by an engine's logger, if the engine has one of its own.
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
	// A caller's mistake, and what can not be done just now, are for who asked: they must not take an outage's place in the log.
	// Breakers are in it already.
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
	o.logger().WarnContext(ctx, "gatehouse: a guard could not decide",
		"guard", e.Guard, "op", e.Op, "err", e.Err, "took", e.Took, "errors_not_logged", skipped)
}
