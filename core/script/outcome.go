package script

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// This file says what an error means for the server, and whether the call may have changed something.

// ErrBreakerOpen is wrapped by the errors of calls that were not sent because earlier calls failed: see
// core.WithBreaker. Nothing was taken, decided or given back. An adapter applies the rule's core.Outage
// policy, as for any error of Redis.
var ErrBreakerOpen = errors.New("core: not sent: the breaker is open because recent calls failed")

// errNeither is the outcome of a call that says nothing about the server.
var errNeither = errors.New("neither")

// outcomeOf returns what an error says about the server: nil when the server works, errNeither when the error
// says nothing, otherwise the error.
func outcomeOf(caller context.Context, err error, early bool) error {
	switch a := verdictOn(err); {
	case err == nil, isAnswer(err) && a.server == works:
		return nil
	case a.server == unserved:
		return errNeither
	case isAnswer(err):
		return err
	case errors.As(err, new(notSentError)):
		return errNeither
	case errors.Is(err, context.Canceled), errors.Is(caller.Err(), context.Canceled),
		caller.Err() != nil && early:
		return errNeither // cancelled by the caller, or ended before Redis had enough time
	case errors.Is(err, redis.ErrClosed), strings.HasPrefix(err.Error(), "redis: can't marshal"):
		return errNeither // caused by the application
	}
	return err
}

// notRunError is an error of a call that has certainly changed nothing, so that there is nothing to undo.
type notRunError struct{ error }

func (e notRunError) Unwrap() error { return e.error }

// isLost reports whether an error says that its connection is of no use, though others may be: it is broken
// or silent, or leads to a server that has become a replica.
func isLost(err error) bool {
	if err == nil || errors.Is(err, errNeither) {
		return false
	}
	return !isAnswer(err) || verdictOn(err).moved
}

// isBroken reports whether an error says that its connection was closed or reset by the other side, so that
// idle ones may be too.
func isBroken(err error) bool {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	var network *net.OpError
	return errors.As(err, &network) && network.Op != "dial" && !network.Timeout()
}

// isDial reports whether an error is of a connection that could not be made.
func isDial(err error) bool {
	var network *net.OpError
	return errors.As(err, &network) && network.Op == "dial"
}

// notRun marks an error of a call that has certainly changed nothing.
func notRun(err error, maybe bool) error {
	if err == nil || maybe || !isRefusal(err) {
		return err
	}
	return notRunError{err}
}

// NotRun reports whether a call that ended with err has certainly changed nothing, as when the breaker did
// not send it, or Redis refused it before it ran.
func NotRun(err error) bool {
	return errors.Is(err, ErrBreakerOpen) || errors.As(err, new(notRunError))
}

// worthAnotherTry reports whether to resend an Idempotent script: when no reply arrived, or the server could
// not run it.
func worthAnotherTry(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	return !isAnswer(err) || verdictOn(err).again == anew
}
