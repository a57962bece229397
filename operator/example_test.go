package operator_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/operator"
)

// The operator's pages behind the application's login. Support may look; only administrators may change
// something.
func Example() {
	gate := core.NewMemory()
	perIP := nethttpmw.Rule{Guard: limit.NewSlidingWindow(gate, "site", limit.PerMinute(100)),
		Who: keyfuncs.IP()}

	ops := operator.New(operator.Options{
		Rules: []nethttpmw.Rule{perIP},
		Authorize: func(r *http.Request, a operator.Action) (string, error) {
			user, role := r.Header.Get("X-User"), r.Header.Get("X-Role") // what the login in front has stored
			if role != "administrator" && (role != "support" || a.Changes) {
				return "", errors.New("not for " + user)
			}
			return user, nil
		},
	})
	mux := http.NewServeMux()
	mux.Handle("/ops/", http.StripPrefix("/ops", ops))

	for _, ask := range []string{"GET /ops/site/peek?actor=203.0.113.7",
		"POST /ops/site/reset?actor=203.0.113.7"} {
		var method, path string
		_, _ = fmt.Sscan(ask, &method, &path)
		r := httptest.NewRequest(method, path, nil)
		r.Header.Set("X-User", "sam")
		r.Header.Set("X-Role", "support")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 200 {"allowed":true,"reason":"ok","limit":100,"remaining":100,"window":"1m0s","retry_after":"0s"}
	// 403 {"title":"Forbidden","status":403,"detail":"You are not allowed to do this."}
}
