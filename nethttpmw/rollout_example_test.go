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

// A tighter limit is tried in the shadow of the one that is in force, and then brought in.
func ExampleRollout() {
	gate := core.NewMemory()
	try := nethttpmw.Shadow()
	tighter := nethttpmw.Rule{Guard: limit.NewSlidingWindow(gate, "tighter", limit.PerMinute(3)),
		Who: keyfuncs.IP(), Rollout: try}
	inForce := nethttpmw.Rule{Guard: limit.NewSlidingWindow(gate, "in-force", limit.PerMinute(100)),
		Who: keyfuncs.IP()}
	page := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	app := nethttpmw.HTTP(tighter, inForce)(page)

	ask := func() int {
		w := httptest.NewRecorder()
		app.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		return w.Code
	}
	for range 10 {
		ask()
	}
	report := try.Report()
	fmt.Println("refused:", report.Refused, "would have been:", report.WouldRefuse, "of",
		report.Passed+report.WouldRefuse)

	if err := try.Set(100, 100); err != nil { // or 100, 10 first: for a tenth of the clients
		fmt.Println(err)
	}
	fmt.Println(ask())
	try.Switch(false) // at once, whatever happens
	fmt.Println(ask())
	// Output:
	// refused: 0 would have been: 7 of 10
	// 429
	// 200
}
