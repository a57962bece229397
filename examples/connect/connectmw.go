// Package connectmw guards the procedures of a Connect server, for clients of Connect, gRPC and gRPC-Web. It
// is an example to copy: [Interceptor] makes the interceptor of a [Rule], and core.Do does the rest.
//
// A limit stands last, since what it has counted still counts when a later rule refuses:
//
//	connect.WithInterceptors(connectmw.Interceptor(slots), connectmw.Interceptor(calls))
package connectmw

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/gatehouse-go/gatehouse/core"
)

// Rule is a guard, and how it sees a call.
type Rule struct {
	Guard core.Guard
	// Who finds the actor of a call.
	Who Key
	// What finds the resource, such as [Procedure]. Without it, all procedures share what the guard gives an
	// actor.
	What Key
}

// Call is what keys are found in.
type Call struct {
	Procedure string
	Peer      connect.Peer
	Header    http.Header
}

// Interceptor guards the procedures of a handler. A stream is one attempt, and its claim ends with it.
func Interceptor(rule Rule) connect.Interceptor { return interceptor{rule} }

type interceptor struct{ Rule }

func (i interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if req.Spec().IsClient {
			return next(ctx, req)
		}
		var resp connect.AnyResponse
		call := Call{req.Spec().Procedure, req.Peer(), req.Header()}
		err := i.do(ctx, call, func(ctx context.Context) (err error) {
			resp, err = next(ctx, req)
			return err
		})
		if err != nil {
			return nil, err
		}
		return resp, nil
	}
}

func (i interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		call := Call{conn.Spec().Procedure, conn.Peer(), conn.RequestHeader()}
		return i.do(ctx, call, func(ctx context.Context) error { return next(ctx, conn) })
	}
}

func (i interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// do runs the handler of a call that the guard allows. A handler that fails gives back what the call has
// taken, except for what a rate limit has counted.
func (r Rule) do(ctx context.Context, call Call, handle func(context.Context) error) error {
	var a core.Attempt
	var err error
	if a.Actor, err = r.Who(call); err != nil {
		return err
	}
	if r.What != nil {
		if a.Resource, err = r.What(call); err != nil {
			return err
		}
	}
	ran, lost := false, false
	var failed error // of the handler
	err = core.Do(ctx, r.Guard, a, func(ctx context.Context) error {
		ran = true
		failed = handle(ctx)
		lost = errors.Is(context.Cause(ctx), core.ErrGone)
		return failed
	})
	var refused *core.Refused
	switch {
	case errors.As(err, &refused): // by this guard, or by one that the handler has asked
		return refusal(refused)
	case lost, errors.Is(err, core.ErrGone):
		return connect.NewError(connect.CodeAborted, errors.New("the call has lost its claim"))
	case failed != nil:
		return failed
	case err == nil && !ran:
		return connect.NewError(connect.CodeAlreadyExists, errors.New("the operation is done"))
	case err == nil:
		return nil
	case errors.Is(err, core.ErrInvalid):
		return connect.NewError(connect.CodeInvalidArgument, errors.New("the guard cannot read the call"))
	case ctx.Err() != nil:
		return ctx.Err() // Connect knows its code
	default: // the cause is for the engine's observer, not for clients
		return connect.NewError(connect.CodeUnavailable, errors.New("the guard cannot decide now"))
	}
}

// refusal is the error of a refused call: with the reason, and how long to wait where waiting helps, for
// clients of HTTP as Retry-After.
func refusal(refused *core.Refused) error {
	err := connect.NewError(codeOf(refused.Reason), errors.New("refused: "+string(refused.Reason)))
	if refused.RetryAfter <= 0 {
		return err
	}
	seconds := int64(math.Ceil(refused.RetryAfter.Seconds()))
	err.Meta().Set("Retry-After", strconv.FormatInt(seconds, 10))
	info := &errdetails.RetryInfo{RetryDelay: durationpb.New(refused.RetryAfter)}
	if detail, failed := connect.NewErrorDetail(info); failed == nil {
		err.AddDetail(detail)
	}
	return err
}

func codeOf(reason core.Reason) connect.Code {
	switch reason {
	case core.ReasonLimited, core.ReasonOverLimit, core.ReasonQuota, core.ReasonBusy, core.ReasonBanned:
		return connect.CodeResourceExhausted
	case core.ReasonDuplicate, core.ReasonConflict:
		return connect.CodeAlreadyExists
	case core.ReasonInProgress:
		return connect.CodeAborted
	case core.ReasonDayRolled, core.ReasonUnconfirmed:
		return connect.CodeUnavailable
	default: // sold_out, closed, early, ...
		return connect.CodeFailedPrecondition
	}
}
