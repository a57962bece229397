package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// spendTokens shows costs that are known afterwards: a request takes an estimate, the handler says bit by bit
// what it has used, and the difference goes back or is charged. Events: "step" and "done"; the figure is the
// number of tokens that are left.
func spendTokens(ctx context.Context, in *instance, send func(string, any)) error {
	const estimate = 40
	say := steps(send)
	user := in.fresh("user")
	left := func() (map[string]int64, error) {
		d, err := in.labs.tokens.Peek(ctx, core.Attempt{Actor: user})
		return map[string]int64{"left": d.Remaining}, err
	}
	// ask sends a request whose answer has so many parts, of ten tokens each.
	ask := func(parts int) (status int, during map[string]int64, err error) {
		answer := func(w http.ResponseWriter, r *http.Request) {
			for range parts {
				if err = ratelimit.Spend(r.Context(), in.labs.tokens.Name(), 10); err != nil {
					break
				}
			}
			if err == nil {
				during, err = left()
			}
			w.WriteHeader(http.StatusOK)
		}
		rule := ratelimit.HTTP(ratelimit.Rule{
			Guard: in.labs.tokens,
			Who:   keyfuncs.Const(user),
			Cost:  func(*keyfuncs.Request) (int64, error) { return estimate, nil },
		})
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/chat", nil)
		return serve(rule(http.HandlerFunc(answer)), r), during, err
	}

	figures, err := left()
	if err != nil {
		return err
	}
	say("step", figures, "A user has %d tokens per minute. Each request is estimated at %d.",
		tokenUnits, estimate)
	for i, parts := range []int{2, 7} {
		_, during, err := ask(parts)
		if err != nil {
			return err
		}
		say("step", during, "While request %d runs, its estimate is taken.", i+1)
		if figures, err = left(); err != nil {
			return err
		}
		text := "goes back"
		if parts*10 > estimate {
			text = "is charged"
		}
		say("step", figures, "It has used %d. The difference %s.", parts*10, text)
	}
	status, _, err := ask(1)
	if err != nil {
		return fmt.Errorf("the last request: %w", err)
	}
	say("done", figures, "Another request gets %d: its estimate does not fit.", status)
	return nil
}
