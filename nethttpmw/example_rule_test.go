package nethttpmw_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
)

// Two requests per minute of each address. A key function makes the attempt out of the request.
func ExampleRule() {
	perIP := nethttpmw.Rule{
		Guard: limit.NewSlidingWindow(core.NewMemory(), "site", limit.PerMinute(2)),
		Who:   keyfuncs.IP(),
	}
	app := nethttpmw.HTTP(perIP)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))

	for range 3 {
		w := httptest.NewRecorder()
		app.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		fmt.Println(w.Code, w.Header().Get("RateLimit"))
	}
	// Output:
	// 200 "site";r=1;t=60
	// 200 "site";r=0;t=60
	// 429 "site";r=0;t=60
}

// The handler sees what was decided.
func ExampleDecision() {
	perIP := nethttpmw.Rule{
		Guard: limit.NewSlidingWindow(core.NewMemory(), "site", limit.PerMinute(10)),
		Who:   keyfuncs.IP(),
	}
	app := nethttpmw.HTTP(perIP)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		d, ok := nethttpmw.Decision(r.Context(), "site")
		fmt.Println(d.Attempt.Actor, d.Remaining, "left", ok)
	}))

	app.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	// Output: 192.0.2.1 9 left true
}

// The cost is an estimate, which the handler corrects: the answer has used 30 of 100 units.
func ExampleSpend() {
	tokens := limit.NewSlidingWindow(core.NewMemory(), "tokens", limit.PerMinute(1000))
	rule := nethttpmw.Rule{
		Guard: tokens,
		Who:   keyfuncs.IP(),
		Cost:  func(*keyfuncs.Request) (int64, error) { return 100, nil },
	}
	app := nethttpmw.HTTP(rule)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "Hello")
		if err := nethttpmw.Spend(r.Context(), "tokens", 30); err != nil {
			fmt.Println(err)
		}
	}))

	r := httptest.NewRequest(http.MethodGet, "/", nil)
	app.ServeHTTP(httptest.NewRecorder(), r)
	d, err := tokens.Peek(r.Context(), core.Attempt{Actor: "192.0.2.1"})
	fmt.Println(d.Remaining, err)
	// Output: 970 <nil>
}
