// Package grpcmw guards the methods of a gRPC server. It is an example to copy: [Unary] and [Stream] make the
// interceptors of a [Rule], and core.Do does the rest.
//
// Several rules are chained. A limit stands last, since what it has counted still counts when a later rule
// refuses:
//
//	grpc.ChainUnaryInterceptor(grpcmw.Unary(slots), grpcmw.Unary(calls))
package grpcmw

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/gatehouse-go/gatehouse/core"
)

// Rule is a guard, and how it sees a call.
type Rule struct {
	Guard core.Guard
	// Who finds the actor of a call.
	Who Key
	// What finds the resource, such as [Method]. Without it, all methods share what the guard gives an actor.
	What Key
	// When says which methods are guarded. Nil: all of them, health checks and reflection included.
	When func(method string) bool
}

// Unary guards the unary methods of a server.
func Unary(rule Rule) grpc.UnaryServerInterceptor {
	return func(
		ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
	) (any, error) {
		var resp any
		err := rule.do(ctx, info.FullMethod, func(ctx context.Context) (err error) {
			resp, err = handler(ctx, req)
			return err
		})
		if err != nil {
			return nil, err
		}
		return resp, nil
	}
}

// Stream guards the streaming methods of a server. A stream is one attempt, and its claim ends with it.
func Stream(rule Rule) grpc.StreamServerInterceptor {
	return func(
		srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
	) error {
		return rule.do(stream.Context(), info.FullMethod, func(ctx context.Context) error {
			return handler(srv, &guarded{stream, ctx})
		})
	}
}

// guarded is a stream whose context ends when its claim is lost.
type guarded struct {
	grpc.ServerStream
	ctx context.Context
}

func (g *guarded) Context() context.Context { return g.ctx }

// do runs the handler of a call that the guard allows. A handler that fails gives back what the call has
// taken, except for what a rate limit has counted.
func (r Rule) do(ctx context.Context, method string, handle func(context.Context) error) error {
	if r.When != nil && !r.When(method) {
		return handle(ctx)
	}
	var a core.Attempt
	var err error
	if a.Actor, err = r.Who(ctx, method); err != nil {
		return err
	}
	if r.What != nil {
		if a.Resource, err = r.What(ctx, method); err != nil {
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
		return status.Error(codes.Aborted, "the call has lost its claim")
	case failed != nil:
		return failed
	case err == nil && !ran:
		return status.Error(codes.AlreadyExists, "the operation is done")
	case err == nil:
		return nil
	case errors.Is(err, core.ErrInvalid):
		return status.Error(codes.InvalidArgument, "the guard cannot read the call")
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	default: // the cause is for the engine's observer, not for clients
		return status.Error(codes.Unavailable, "the guard cannot decide now")
	}
}

// refusal is the status of a refused call: with the reason, and how long to wait where waiting helps.
func refusal(refused *core.Refused) error {
	reason := string(refused.Reason)
	s := status.New(codeOf(refused.Reason), "refused: "+reason)
	info := &errdetails.ErrorInfo{Reason: strings.ToUpper(reason), Domain: "gatehouse"}
	detailed, err := s.WithDetails(info)
	if refused.RetryAfter > 0 {
		detailed, err = s.WithDetails(info, &errdetails.RetryInfo{RetryDelay: durationpb.New(refused.RetryAfter)})
	}
	if err != nil {
		return s.Err()
	}
	return detailed.Err()
}

func codeOf(reason core.Reason) codes.Code {
	switch reason {
	case core.ReasonLimited, core.ReasonOverLimit, core.ReasonQuota, core.ReasonBusy, core.ReasonBanned:
		return codes.ResourceExhausted
	case core.ReasonDuplicate, core.ReasonConflict:
		return codes.AlreadyExists
	case core.ReasonInProgress:
		return codes.Aborted
	case core.ReasonDayRolled, core.ReasonUnconfirmed:
		return codes.Unavailable
	default: // sold_out, closed, early, ...
		return codes.FailedPrecondition
	}
}
