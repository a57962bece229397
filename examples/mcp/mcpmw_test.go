package mcpmw_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/budget"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/core/votes"
	mcpmw "github.com/gatehouse-go/gatehouse/examples/mcp"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func newGate(t *testing.T) *core.Engine {
	b := redistest.Single(t)
	return core.New(b.Client, core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute))
}

type tool func(ctx context.Context) error

var works tool = func(context.Context) error { return nil }

// newServer makes a server with the tools search and translate, which do the same.
func newServer(do *tool, rules ...mcpmw.Rule) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	run := func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		return nil, nil, (*do)(ctx)
	}
	mcp.AddTool(server, &mcp.Tool{Name: "search"}, run)
	mcp.AddTool(server, &mcp.Tool{Name: "translate"}, run)
	server.AddReceivingMiddleware(recovers)
	for _, rule := range rules {
		server.AddReceivingMiddleware(mcpmw.Tools(rule))
	}
	return server
}

// recovers answers panics, as servers do.
func recovers(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (result mcp.Result, err error) {
		defer func() {
			if recover() != nil {
				err = errors.New("the tool has panicked")
			}
		}()
		return next(ctx, method, req)
	}
}

// serve starts the server on HTTP, with sessions or without. A token is the name of its user.
func serve(t *testing.T, server *mcp.Server, options *mcp.StreamableHTTPOptions) (url string) {
	t.Helper()
	users := func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{UserID: token, Expiration: time.Now().Add(time.Hour)}, nil
	}
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, options)
	web := httptest.NewServer(auth.RequireBearerToken(users, nil)(handler))
	t.Cleanup(web.Close)
	return web.URL
}

type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// connect begins a session of the user.
func connect(t *testing.T, url, user string) *mcp.ClientSession {
	t.Helper()
	return session(t, &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: bearer(user)}})
}

func session(t *testing.T, transport mcp.Transport) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	s, err := client.Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// call calls a tool. It returns the text of the result, whether it is an error, and what a program reads.
func call(t *testing.T, s *mcp.ClientSession, tool string) (text string, failed bool, meta map[string]any) {
	t.Helper()
	result, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool})
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range result.Content {
		text += content.(*mcp.TextContent).Text
	}
	return text, result.IsError, result.Meta
}

func wantOK(t *testing.T, s *mcp.ClientSession, tool string) {
	t.Helper()
	if text, failed, _ := call(t, s, tool); failed {
		t.Errorf("%s: %s", tool, text)
	}
}

func wantFailed(t *testing.T, s *mcp.ClientSession, tool, want string) {
	t.Helper()
	if text, failed, _ := call(t, s, tool); !failed || !strings.Contains(text, want) {
		t.Errorf("%s, failed %t: %s: want %q", tool, failed, text, want)
	}
}

// inProcess connects a client and a server as programs are that talk on standard input and output.
func inProcess(t *testing.T, server *mcp.Server) *mcp.ClientSession {
	t.Helper()
	there, here := mcp.NewInMemoryTransports()
	s, err := server.Connect(t.Context(), there, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return session(t, here)
}

func TestToolsAreLimitedBySession(t *testing.T) {
	do := works
	url := serve(t, newServer(&do, mcpmw.Rule{
		Guard: limit.NewSlidingWindow(newGate(t), "calls", limit.PerHour(2)), Who: mcpmw.Session, What: mcpmw.Tool,
	}), nil)
	ann, bob := connect(t, url, "ann"), connect(t, url, "bob")
	wantOK(t, ann, "search")
	wantOK(t, ann, "search")
	text, failed, meta := call(t, ann, "search")
	if !failed || !strings.HasPrefix(text, "Too many calls. Try again in 3") || meta["reason"] != "limited" {
		t.Errorf("failed %t: %q, %v", failed, text, meta)
	}
	if after, ok := meta["retryAfterSeconds"].(float64); !ok || after < 3590 || after > 3600 {
		t.Errorf("%v: want the seconds to wait", meta)
	}
	wantOK(t, ann, "translate")
	wantOK(t, bob, "search")
	if _, err := ann.ListTools(t.Context(), nil); err != nil {
		t.Errorf("%v: want that only calls of tools are limited", err)
	}
}

// TestToolsAreLimitedByUser: MCP 2026-07-28 has no sessions, but a token has its user.
func TestToolsAreLimitedByUser(t *testing.T) {
	do := works
	gate := newGate(t)
	stateless := &mcp.StreamableHTTPOptions{Stateless: true}
	url := serve(t, newServer(&do, mcpmw.Rule{
		Guard: limit.NewSlidingWindow(gate, "calls", limit.PerHour(2)), Who: mcpmw.User, AsError: true,
	}), stateless)
	for range 2 {
		wantOK(t, connect(t, url, "ann"), "search")
	}
	ann := connect(t, url, "ann")
	if version := ann.InitializeResult().ProtocolVersion; version < "2026-07-28" {
		t.Errorf("the client speaks MCP %s", version)
	}
	_, err := ann.CallTool(t.Context(), &mcp.CallToolParams{Name: "search"})
	var told *jsonrpc.Error
	if !errors.As(err, &told) || told.Code != mcpmw.CodeRefused {
		t.Fatalf("%v: want an error of JSON-RPC", err)
	}
	var data struct {
		Reason            string
		RetryAfterSeconds int
	}
	err = json.Unmarshal(told.Data, &data)
	if err != nil || data.Reason != "limited" || data.RetryAfterSeconds < 3590 {
		t.Errorf("%s, %v: want the reason and the seconds", told.Data, err)
	}
	wantOK(t, connect(t, url, "bob"), "search")

	url = serve(t, newServer(&do, mcpmw.Rule{
		Guard: limit.NewSlidingWindow(gate, "sessions", limit.PerHour(2)), Who: mcpmw.Session,
	}), stateless)
	_, err = connect(t, url, "ann").CallTool(t.Context(), &mcp.CallToolParams{Name: "search"})
	if !errors.As(err, &told) || told.Code != jsonrpc.CodeInvalidRequest {
		t.Errorf("%v: want that there is no session", err)
	}
}

func TestAToolSaysWhatItHasCost(t *testing.T) {
	find := func(path []string) ([]budget.Limit, error) {
		return []budget.Limit{{Max: []int64{1000, 600}[len(path)-1], Window: time.Hour}}, nil
	}
	tokens := budget.New(newGate(t), "tokens", budget.Options{Levels: []string{"user", "tool"}, Find: find})
	byTool := func(call *mcp.CallToolRequest) (string, error) {
		user, err := mcpmw.User(call)
		return budget.Path(user, call.Params.Name), err
	}
	var used int64
	var do tool = func(ctx context.Context) error {
		if !core.Spend(ctx, "tokens", used) {
			t.Error("the work of the tool is not that of the guard")
		}
		return nil
	}
	url := serve(t, newServer(&do, mcpmw.Rule{Guard: tokens, Who: byTool, Cost: 400}), nil)
	ann := connect(t, url, "ann")
	left := func(tool string) int64 {
		t.Helper()
		d, err := tokens.Peek(t.Context(), core.Attempt{Actor: budget.Path("ann", tool)})
		if err != nil {
			t.Fatal(err)
		}
		return d.Remaining
	}
	used = 50
	wantOK(t, ann, "search")
	if left("search") != 550 {
		t.Errorf("%d left: want what 50 of 600 leave", left("search"))
	}
	used = 500
	wantOK(t, ann, "search")
	if left("search") != 50 {
		t.Errorf("%d left: want what 550 of 600 leave", left("search"))
	}
	wantFailed(t, ann, "search", "Too many calls")
	wantOK(t, ann, "translate") // 1,050 of the user's 1,000
	wantFailed(t, ann, "translate", "Too many calls")
}

func TestAFailedToolGivesItsClaimBack(t *testing.T) {
	gate := newGate(t)
	var do tool
	ann := inProcess(t, newServer(&do,
		mcpmw.Rule{Guard: votes.New(gate, "polls", votes.Options{}), Who: mcpmw.Process, What: mcpmw.Tool},
		mcpmw.Rule{Guard: semaphore.New(gate, "slots", semaphore.Options{Max: 1}), Who: mcpmw.Process},
	))
	do = func(context.Context) error { return errors.New("no such page") }
	wantFailed(t, ann, "search", "no such page")
	protocol := &jsonrpc.Error{Code: 17, Message: "of the tool"}
	do = func(context.Context) error { return protocol }
	var told *jsonrpc.Error
	_, err := ann.CallTool(t.Context(), &mcp.CallToolParams{Name: "search"})
	if !errors.As(err, &told) || told.Code != protocol.Code {
		t.Errorf("%v: want the error of the tool", err)
	}
	do = func(context.Context) error { panic("of the tool") }
	if _, err = ann.CallTool(t.Context(), &mcp.CallToolParams{Name: "search"}); err == nil {
		t.Error("want an error of a tool that panics")
	}
	do = works
	wantOK(t, ann, "search")
	wantFailed(t, ann, "search", "The call is refused: duplicate.")
}

func TestAToolThatAsksForInputGivesItsClaimBack(t *testing.T) {
	do := works
	server := newServer(&do, mcpmw.Rule{
		Guard: votes.New(newGate(t), "polls", votes.Options{}), Who: mcpmw.User, What: mcpmw.Tool,
	})
	mcp.AddTool(server, &mcp.Tool{Name: "deploy"},
		func(_ context.Context, call *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			if call.Params.InputResponses == nil {
				sure := &mcp.ElicitParams{Message: "Are you sure?"}
				return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"sure": sure}}, nil, nil
			}
			return nil, nil, nil
		})
	url := serve(t, server, &mcp.StreamableHTTPOptions{Stateless: true})
	asked := 0
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			asked++
			return &mcp.ElicitResult{Action: "accept"}, nil
		},
	})
	ann, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: url, HTTPClient: &http.Client{Transport: bearer("ann")},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ann.Close() })
	wantOK(t, ann, "deploy")
	if asked != 1 {
		t.Errorf("asked %d times: want once", asked)
	}
	wantFailed(t, ann, "deploy", "duplicate")
}

func TestAToolRunsOnceAtATime(t *testing.T) {
	begun, end := make(chan bool), make(chan bool)
	var do tool = func(context.Context) error { begun <- true; <-end; return nil }
	ann := inProcess(t, newServer(&do, mcpmw.Rule{
		Guard: semaphore.New(newGate(t), "slots", semaphore.Options{Max: 1}), Who: mcpmw.Process, What: mcpmw.Tool,
	}))
	ended := make(chan error, 1)
	go func() {
		_, err := ann.CallTool(t.Context(), &mcp.CallToolParams{Name: "search"})
		ended <- err
	}()
	<-begun
	wantFailed(t, ann, "search", "The tool is busy. Try again in ")
	end <- true
	if err := <-ended; err != nil {
		t.Error(err)
	}
	do = works
	wantOK(t, ann, "search")
}

// TestTheAnswerOfARuleInFront: the SDK's client makes an error of its own of a 429, without a delay.
func TestTheAnswerOfARuleInFront(t *testing.T) {
	do := works
	server := newServer(&do)
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	ruled := ratelimit.HTTP(ratelimit.Rule{
		Guard: limit.NewSlidingWindow(newGate(t), "requests", limit.PerHour(1)), Who: keyfuncs.IP(),
	})(handler)
	var guarded atomic.Bool
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if guarded.Load() {
			ruled.ServeHTTP(w, r)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	ann := connect(t, web.URL, "ann")
	guarded.Store(true)
	wantOK(t, ann, "search")
	_, err := ann.CallTool(t.Context(), &mcp.CallToolParams{Name: "search"})
	if err == nil || !strings.HasSuffix(err.Error(), "Too Many Requests") {
		t.Errorf("%v: want the text of a 429 alone", err)
	}
	guarded.Store(false)
	wantOK(t, ann, "search")
}

func TestOutage(t *testing.T) {
	server := redistest.StartServer(t)
	gate := core.New(server.Client(t), core.WithPrefix("outage"), core.WithDeadline(time.Second))
	do := works
	slots := semaphore.New(gate, "slots", semaphore.Options{Max: 1})
	closed := inProcess(t, newServer(&do, mcpmw.Rule{Guard: slots, Who: mcpmw.Process}))
	program := inProcess(t, newServer(&do, mcpmw.Rule{Guard: slots, Who: mcpmw.Process, AsError: true}))
	local := inProcess(t, newServer(&do, mcpmw.Rule{
		Guard: limit.NewSlidingWindow(gate, "calls", limit.PerHour(1)), Who: mcpmw.Process,
	}))
	server.Kill()
	wantFailed(t, closed, "search", "The tool is not available now.")
	var told *jsonrpc.Error
	_, err := program.CallTool(t.Context(), &mcp.CallToolParams{Name: "search"})
	if !errors.As(err, &told) || told.Code != mcpmw.CodeUnavailable {
		t.Errorf("%v: want that the tool is not available", err)
	}
	wantOK(t, local, "search")
	wantFailed(t, local, "search", "Too many calls.")
}
