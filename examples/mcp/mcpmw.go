// Package mcpmw guards the tools of an MCP server. It is an example to copy: [Tools] makes the middleware of
// a [Rule], and core.Do does the rest.
//
// What a limit has counted still counts when a later rule refuses:
//
//	server.AddReceivingMiddleware(mcpmw.Tools(calls), mcpmw.Tools(tokens))
package mcpmw

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/gatehouse-go/gatehouse/core"
)

// The codes of JSON-RPC errors. MCP 2026-07-28 wants new codes outside -32768 to -32000.
const (
	CodeRefused     = 429
	CodeUnavailable = 503
)

// Rule is a guard, and how it sees a call of a tool.
type Rule struct {
	Guard core.Guard
	// Who finds the actor of a call, such as [User] or [Session].
	Who Key
	// What finds the resource, such as [Tool]. Without it, all tools share what the guard gives an actor.
	What Key
	// Cost is how many units a call takes: 1 if it is zero. A tool says with core.Spend what it has really cost.
	Cost int64
	// AsError answers refused calls with a JSON-RPC error, which programs read. Without it they get the result
	// of a failed tool, which models read.
	AsError bool
}

// errFailed makes core.Do give back what the call has taken.
var errFailed = errors.New("mcpmw: the tool has failed")

// Tools guards tools/call. Other methods pass.
func Tools(rule Rule) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			call, ok := req.(*mcp.CallToolRequest)
			if !ok {
				return next(ctx, method, req)
			}
			a, err := rule.attempt(call)
			if err != nil {
				return nil, err
			}
			ran := false
			var result mcp.Result
			var failed error // of the tool
			err = core.Do(ctx, rule.Guard, a, func(ctx context.Context) error {
				ran = true
				if result, failed = next(ctx, method, req); failed != nil {
					return failed
				}
				// A tool that asks for input is called again with it.
				if r, ok := result.(*mcp.CallToolResult); ok && (r.IsError || r.InputRequests != nil) {
					return errFailed
				}
				return nil
			})
			switch {
			case ran && (err == nil || errors.Is(err, errFailed)):
				return result, nil
			case failed != nil:
				return nil, failed
			default:
				return rule.answer(err)
			}
		}
	}
}

func (r Rule) attempt(call *mcp.CallToolRequest) (a core.Attempt, err error) {
	a.Cost = r.Cost
	if a.Actor, err = r.Who(call); err == nil && r.What != nil {
		a.Resource, err = r.What(call)
	}
	return a, err
}

// answer says why the tool has not been called, or that its work does not count. The cause of an outage is
// for the engine's observer.
func (r Rule) answer(err error) (mcp.Result, error) {
	var refused *core.Refused
	switch {
	case errors.As(err, &refused):
		return r.reply(CodeRefused, textOf(refused), refused.Reason, seconds(refused))
	case err == nil:
		return r.reply(CodeRefused, "This has been done before.", core.ReasonDone, 0)
	default:
		return r.reply(CodeUnavailable, "The tool is not available now. Try again later.", "unavailable", 0)
	}
}

func (r Rule) reply(code int64, text string, reason core.Reason, after int64) (mcp.Result, error) {
	data := map[string]any{"reason": reason}
	if after > 0 {
		data["retryAfterSeconds"] = after
	}
	if !r.AsError {
		content := []mcp.Content{&mcp.TextContent{Text: text}}
		return &mcp.CallToolResult{Meta: data, Content: content, IsError: true}, nil
	}
	encoded, err := json.Marshal(data)
	if err != nil {
		return nil, err
	}
	return nil, &jsonrpc.Error{Code: code, Message: text, Data: encoded}
}

// textOf tells a model what to do.
func textOf(refused *core.Refused) string {
	var text string
	switch refused.Reason {
	case core.ReasonLimited, core.ReasonQuota:
		text = "Too many calls."
	case core.ReasonBusy:
		text = "The tool is busy."
	default:
		text = "The call is refused: " + string(refused.Reason) + "."
	}
	if refused.RetryAfter > 0 {
		text += fmt.Sprintf(" Try again in %d seconds, not before.", seconds(refused))
	}
	return text
}

func seconds(refused *core.Refused) int64 { return int64(math.Ceil(refused.RetryAfter.Seconds())) }
