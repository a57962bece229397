package docs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/gatehouse-go/gatehouse/adapters/transport"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// tokensOf reads what the partner says the call has cost.
func tokensOf(body io.Reader) (int64, error) {
	var answer struct{ Tokens int64 }
	err := json.NewDecoder(body).Decode(&answer)
	return answer.Tokens, err
}

func call(client *http.Client, url string) error {
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	used, err := tokensOf(resp.Body)
	if err == nil { // else the estimate counts
		transport.Spend(resp.Request.Context(), "partner", used)
	}
	return err
}

func Example_partners() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"tokens": 599}`)
	}))
	defer server.Close()
	gate := core.New(client(), core.WithDeadline(30*time.Second))

	partner := limit.NewSlidingWindow(gate, "partner", limit.PerMinute(600))
	client := &http.Client{Transport: transport.New(nil, transport.Rule{
		Guard: partner,
		Who:   keyfuncs.Const("account-7"), // what the partner counts
		Most:  2 * time.Second,             // how long a call waits for its unit
	})}
	for range 3 {
		err := call(client, server.URL)
		var limited *transport.LimitedError
		if errors.As(err, &limited) {
			log.Printf("%s is used up: try again in %v", limited.Guard, limited.RetryAfter)
		}
		fmt.Println(err == nil)
	}
	// Output:
	// true
	// true
	// false
}

func waitForThree(ctx context.Context, partner *limit.SlidingWindow) (core.Decision, error) {
	d, err := partner.Wait(ctx, core.Attempt{Actor: "account-7", Cost: 3})
	return d, err
}

func Example_wait() {
	gate := core.New(client(), core.WithDeadline(30*time.Second))
	partner := limit.NewSlidingWindow(gate, "partner", limit.Per(3, 100*time.Millisecond))
	for range 2 {
		d, err := waitForThree(context.Background(), partner)
		fmt.Println(d.Allowed, err)
	}
	// Output:
	// true <nil>
	// true <nil>
}
