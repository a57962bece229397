package mcpmw_test

import (
	"context"
	"fmt"
	"log"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	mcpmw "github.com/gatehouse-go/gatehouse/examples/mcp"
)

type question struct {
	Text string `json:"text"`
}

// One call of each tool per minute, and 10,000 tokens per hour for all tools.
func Example() {
	ctx := context.Background()
	gate := core.NewMemory() // in production: core.New(rdb)
	server := mcp.NewServer(&mcp.Implementation{Name: "answers", Version: "1"}, nil)
	answer := func(string) (text string, tokens int64) { return "42", 700 }

	ask := func(ctx context.Context, _ *mcp.CallToolRequest, q question) (*mcp.CallToolResult, any, error) {
		text, used := answer(q.Text)
		core.Spend(ctx, "tokens", used)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
	}
	mcp.AddTool(server, &mcp.Tool{Name: "ask"}, ask)

	who := mcpmw.Process // on HTTP: mcpmw.User, or mcpmw.Session
	tokens := mcpmw.Rule{
		Guard: limit.NewSlidingWindow(gate, "tokens", limit.PerHour(10_000)),
		Who:   who,
		Cost:  2000, // what an answer has at most
	}
	calls := mcpmw.Rule{
		Guard: limit.NewSlidingWindow(gate, "calls", limit.PerMinute(1)),
		Who:   who,
		What:  mcpmw.Tool,
	}
	server.AddReceivingMiddleware(mcpmw.Tools(calls), mcpmw.Tools(tokens))

	there, here := mcp.NewInMemoryTransports()
	if _, err := server.Connect(ctx, there, nil); err != nil {
		log.Fatal(err)
	}
	client, err := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil).Connect(ctx, here, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	for range 2 {
		result, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "ask", Arguments: question{"why?"}})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(result.Content[0].(*mcp.TextContent).Text)
	}
	// Output:
	// 42
	// Too many calls. Try again in 60 seconds, not before.
}
