package connectmw_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	connectmw "github.com/gatehouse-go/gatehouse/examples/connect"
)

// One call of each procedure per hour and key, and five at a time.
func Example() {
	gate := core.NewMemory() // in production: core.New(rdb)
	hello := func(
		_ context.Context, req *connect.Request[wrapperspb.StringValue],
	) (*connect.Response[wrapperspb.StringValue], error) {
		return connect.NewResponse(wrapperspb.String("hello, " + req.Msg.Value)), nil
	}

	key := connectmw.Header("X-Api-Key") // which an interceptor in front has checked
	slots := connectmw.Rule{Guard: semaphore.New(gate, "slots", semaphore.Options{Max: 5}), Who: key}
	calls := connectmw.Rule{
		Guard: limit.NewSlidingWindow(gate, "calls", limit.PerHour(1)),
		Who:   key,
		What:  connectmw.Procedure,
	}
	guarded := connect.WithInterceptors(connectmw.Interceptor(slots), connectmw.Interceptor(calls))
	const procedure = "/greet.Greeter/Hello" // generated code has its name
	mux := http.NewServeMux()
	mux.Handle(procedure, connect.NewUnaryHandler(procedure, hello, guarded))
	server := httptest.NewServer(mux)
	defer server.Close()

	client := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](
		server.Client(), server.URL+procedure)
	for range 2 {
		req := connect.NewRequest(wrapperspb.String("ann"))
		req.Header().Set("X-Api-Key", "ann")
		resp, err := client.CallUnary(context.Background(), req)
		if err != nil {
			fmt.Println(err)
		} else {
			fmt.Println(resp.Msg.Value)
		}
	}
	// Output:
	// hello, ann
	// resource_exhausted: refused: limited
}
