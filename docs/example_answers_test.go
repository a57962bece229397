package docs_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// The answers of a rule to refused requests, and its figures on all answers.
func Example_answers() {
	gate := core.NewMemory()
	german := map[core.Reason]string{core.ReasonLimited: "Zu viele Anfragen."}

	site := ratelimit.Rule{
		Guard:   limit.NewSlidingWindow(gate, "site", limit.PerMinute(1)),
		Who:     keyfuncs.IP(),
		Headers: ratelimit.Headers{Legacy: true}, // X-RateLimit-* as well
		Texts: func(r *http.Request, refusal *ratelimit.Refusal) ratelimit.Text {
			// an application has a matcher, such as that of golang.org/x/text/language
			if r.Header.Get("Accept-Language") != "de" {
				return ratelimit.Text{} // the standard one
			}
			return ratelimit.Text{Detail: german[refusal.Reason], Lang: "de"}
		},
		Answer: func(w http.ResponseWriter, r *http.Request, refusal *ratelimit.Refusal) {
			if r.URL.Path == "/shop" {
				http.Redirect(w, r, "/busy", http.StatusSeeOther)
				return
			}
			refusal.Reply(w, r) // the standard answer
		},
	}

	app := ratelimit.HTTP(site)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, path := range []string{"/", "/", "/shop"} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Accept-Language", "de")
		r.Header.Set("Accept", "text/plain")
		w := httptest.NewRecorder()
		app.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header()["Location"], w.Header()["Ratelimit-Policy"],
			w.Header()["X-Ratelimit-Remaining"])
		fmt.Print(w.Body)
	}
	// Output:
	// 200 [] ["site";q=1;w=60] [0]
	// 429 [] ["site";q=1;w=60] [0]
	// Quota Exceeded
	//
	// Zu viele Anfragen.
	// 303 [/busy] ["site";q=1;w=60] [0]
	// <a href="/busy">See Other</a>.
	//
}
