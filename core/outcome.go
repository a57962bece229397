package core

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// This file says what an error means: for the server, and for what the call may have done.

// errNeither is the outcome of a call that says nothing about the server.
var errNeither = errors.New("neither")

// outcomeOf returns what an error says about the server: nil when the server works, errNeither when the error
// says nothing, otherwise the error.
func outcomeOf(caller context.Context, err error, early bool) error {
	var answer redis.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &answer) && !isUnready(err):
		return nil
	case errors.As(err, &answer) && strings.Contains(err.Error(), "Hash slot not served"):
		return errNeither // a slot without a server says nothing about the server that answered
	case errors.As(err, &answer):
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

// hopeless are the prefixes of answers that every call gets until somebody has changed something, or that
// every call which writes gets: a replica, a server that is loading or may not write, and a login that is
// refused.
var hopeless = []string{"LOADING", "READONLY", "MASTERDOWN", "MISCONF", "NOREPLICAS", "BUSY ", "NOAUTH",
	"WRONGPASS", "DENIED", "invalid password", "AUTH <password> called without", "Client sent AUTH"}

// unready are the prefixes of further answers by which a server says that it cannot work now, whatever the
// call.
var unready = []string{"CLUSTERDOWN", "max number of clients reached"}

// isHopeless reports whether one such error is enough to open a breaker.
func isHopeless(err error) bool { return hasPrefix(err, hopeless) || isNoPermission(err) }

func isUnready(err error) bool { return isHopeless(err) || hasPrefix(err, unready) }

// isNoPermission reports whether the client's user may run no scripts at all. Where it only may not have a
// key, or a command of one script, other calls go on.
func isNoPermission(err error) bool {
	return redis.HasErrorPrefix(err, "NOPERM") && strings.Contains(err.Error(), "'eval")
}

func hasPrefix(err error, prefixes []string) bool {
	var answer redis.Error
	return errors.As(err, &answer) &&
		slices.ContainsFunc(prefixes, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}

// notRunError is an error of a call that has certainly changed nothing, so that there is nothing to undo.
type notRunError struct{ error }

func (e notRunError) Unwrap() error { return e.error }

// isRefusal reports whether a server has refused a call before it changed anything. It says NOPERM of a call,
// and not of a command inside of a script; and a script gets the others at its first command that writes, if
// not before it runs, or never.
func isRefusal(err error) bool {
	if redis.HasErrorPrefix(err, "NOPERM") {
		return !strings.Contains(err.Error(), "script: ")
	}
	return errors.As(err, new(notSentError)) || isUnready(err) ||
		hasPrefix(err, []string{"OOM", "TRYAGAIN", "MOVED", "ASK"})
}

// isLost reports whether an error says that its connection is of no use, though others may be: it is broken
// or silent, or leads to a server that has become a replica.
func isLost(err error) bool {
	if err == nil || errors.Is(err, errNeither) {
		return false
	}
	return !isAnswer(err) || redis.HasErrorPrefix(err, "READONLY")
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
