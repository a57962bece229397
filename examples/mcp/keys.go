package mcpmw

import (
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Key finds a text by which calls are counted. Its error is the one that the client gets.
type Key func(call *mcp.CallToolRequest) (string, error)

// Tool finds the name of the tool.
func Tool(call *mcp.CallToolRequest) (string, error) { return call.Params.Name, nil }

// User finds the user of the checked token: see auth.RequireBearerToken of the SDK. It is the safe key for a
// server on HTTP.
func User(call *mcp.CallToolRequest) (string, error) {
	if extra := call.Extra; extra != nil && extra.TokenInfo != nil && extra.TokenInfo.UserID != "" {
		return extra.TokenInfo.UserID, nil
	}
	return "", &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "log in"}
}

// Session finds the ID of the session. A client that begins a new one begins a new budget. Servers without
// state, and so all of MCP 2026-07-28, have no sessions, and in them it is an error.
func Session(call *mcp.CallToolRequest) (string, error) {
	if id := call.Session.ID(); id != "" {
		return id, nil
	}
	return "", &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "there is no session"}
}

// Process finds the same for all calls: the only client of a server on standard input and output.
func Process(*mcp.CallToolRequest) (string, error) { return "process", nil }
