package nethttpmw_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// Every answer says how much is left, allowed or refused: a guard with several limits has a policy for each,
// and RateLimit shows the binding limit, the one nearest to its end.
func ExampleHeaders() {
	gate := core.NewMemory()
	site := ratelimit.Rule{Guard: limit.NewSlidingWindow(gate, "site", limit.PerMinute(100)), Who: keyfuncs.IP()}
	api := ratelimit.Rule{Guard: limit.NewSlidingWindow(gate, "api", limit.PerSecond(10), limit.PerDay(2)),
		Who: keyfuncs.IP()}
	app := ratelimit.HTTP(site, api)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for range 3 {
		w := httptest.NewRecorder()
		app.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		fmt.Println(w.Code, w.Header()["Retry-After"])
		fmt.Println(" ", w.Header().Get("RateLimit-Policy"))
		fmt.Println(" ", w.Header().Get("RateLimit"))
	}
	// Output:
	// 200 []
	//   "site";q=100;w=60, "api/1s";q=10;w=1, "api/24h";q=2;w=86400
	//   "site";r=99;t=60, "api/24h";r=1;t=86400
	// 200 []
	//   "site";q=100;w=60, "api/1s";q=10;w=1, "api/24h";q=2;w=86400
	//   "site";r=98;t=60, "api/24h";r=0;t=86400
	// 429 [86400]
	//   "site";q=100;w=60, "api/1s";q=10;w=1, "api/24h";q=2;w=86400
	//   "api/24h";r=0;t=86400
}

// A limit on the bytes that tenants upload, with the older fields for clients that know no others, and a
// limit whose figures are hidden.
func ExampleHeaders_options() {
	gate := core.NewMemory()
	tenant := keyfuncs.Header("X-Tenant")
	upload := ratelimit.Rule{
		Guard: limit.NewTokenBucket(gate, "upload", limit.PerHour(1_000_000)),
		Who:   tenant,
		Cost:  func(r *keyfuncs.Request) (int64, error) { return r.ContentLength, nil },
		Headers: ratelimit.Headers{
			Legacy:       true,
			Unit:         "content-bytes",
			PartitionKey: tenant, // the client knows it: it is in the request
		},
	}
	secret := ratelimit.Rule{
		Guard:   limit.NewSlidingWindow(gate, "secret", limit.PerDay(7)),
		Who:     tenant,
		Headers: ratelimit.Headers{Hide: true},
	}
	app := ratelimit.HTTP(upload, secret)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))

	r := httptest.NewRequest(http.MethodPut, "/files/1", http.NoBody)
	r.ContentLength = 250_000
	r.Header.Set("X-Tenant", "acme")
	w := httptest.NewRecorder()
	app.ServeHTTP(w, r)
	for _, name := range []string{"RateLimit-Policy", "RateLimit", "X-RateLimit-Limit",
		"X-RateLimit-Remaining"} {
		fmt.Printf("%s: %s\n", name, w.Header().Get(name))
	}
	// Output:
	// RateLimit-Policy: "upload";q=1000000;qu="content-bytes";w=3600;pk=:YWNtZQ==:
	// RateLimit: "upload";r=750000;t=1;pk=:YWNtZQ==:
	// X-RateLimit-Limit: 1000000
	// X-RateLimit-Remaining: 750000
}

// Refusals in the language of the request: the application has a text for each reason, and a program still
// finds the reason itself.
func ExampleRule_texts() {
	german := map[core.Reason]ratelimit.Text{
		core.ReasonLimited: {Title: "Zu viele Anfragen", Detail: "Versuchen Sie es in %.0f Sekunden noch einmal.",
			Lang: "de"},
	}
	perIP := ratelimit.Rule{
		Guard: limit.NewSlidingWindow(core.NewMemory(), "site", limit.PerMinute(1)),
		Who:   keyfuncs.IP(),
		Texts: func(r *http.Request, refusal *ratelimit.Refusal) ratelimit.Text {
			// an application has a matcher, such as that of golang.org/x/text/language
			if r.Header.Get("Accept-Language") != "de" {
				return ratelimit.Text{} // the standard one
			}
			text := german[refusal.Reason]
			text.Detail = fmt.Sprintf(text.Detail, refusal.RetryAfter().Seconds())
			return text
		},
	}
	app := ratelimit.HTTP(perIP)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	ask := func(accept, language string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept", accept)
		r.Header.Set("Accept-Language", language)
		w := httptest.NewRecorder()
		app.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			fmt.Print(w.Code, " ", w.Header().Get("Content-Type"), "\n", w.Body)
		}
	}
	ask("*/*", "de")
	ask("*/*", "de")
	ask("text/plain", "de")
	ask("text/plain", "en")
	// Output:
	// 429 application/problem+json
	// {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Zu viele Anfragen","status":429,"detail":"Versuchen Sie es in 60 Sekunden noch einmal.","reason":"limited","violated-policies":["site"]}
	// 429 text/plain; charset=utf-8
	// Zu viele Anfragen
	//
	// Versuchen Sie es in 60 Sekunden noch einmal.
	// 429 text/plain; charset=utf-8
	// Quota Exceeded
	//
	// Too many requests. Try again later.
}

// An answer by the application: browsers that are too early for the sale are redirected to the page with the
// countdown, and all others get the standard answer.
func ExampleRule_answer() {
	rdb, stop := newRedis()
	defer stop()
	gate := core.New(rdb, core.WithDeadline(time.Minute))
	sale := seckill.New(gate, "sale", seckill.Options{})
	buy := ratelimit.Rule{
		Guard: sale,
		Who:   keyfuncs.Query("user"),
		What:  keyfuncs.Param("sku"),
		Answer: func(w http.ResponseWriter, r *http.Request, refusal *ratelimit.Refusal) {
			if refusal.Reason == core.ReasonNotReady && r.Header.Get("Sec-Fetch-Mode") == "navigate" {
				http.Redirect(w, r, "/soon/"+r.PathValue("sku"), http.StatusSeeOther)
				return
			}
			refusal.Reply(w, r)
		},
	}
	mux := http.NewServeMux()
	mux.Handle("POST /sales/{sku}/orders",
		ratelimit.HTTP(buy)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	for _, mode := range []string{"navigate", "cors"} {
		r := httptest.NewRequest(http.MethodPost, "/sales/ticket/orders?user=ann", nil)
		r.Header.Set("Sec-Fetch-Mode", mode)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header()["Location"], w.Header()["Content-Type"])
	}
	// Output:
	// 303 [/soon/ticket] []
	// 503 [] [application/problem+json]
}
