package keyfuncs_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// The parameter of a route of http.ServeMux. The adapters of gin and echo find theirs by the same name.
func ExampleParam() {
	poll, route := keyfuncs.Param("poll"), keyfuncs.Route()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /polls/{poll}/votes", func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println(poll(&keyfuncs.Request{Request: r}))
		fmt.Println(route(&keyfuncs.Request{Request: r}))
	})
	mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/polls/final/votes", nil))
	// Output:
	// final <nil>
	// /polls/{poll}/votes <nil>
}

// A list of clients that a rule denies. It can be changed while requests are served.
func ExampleNewList() {
	deny := keyfuncs.NewList(keyfuncs.IP(), "198.51.100.0/24")
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "198.51.100.7:50000"
	req := &keyfuncs.Request{Request: r}

	fmt.Println(deny.Contains(req))
	deny.Remove("198.51.100.0/24")
	fmt.Println(deny.Contains(req))
	// Output:
	// true <nil>
	// false <nil>
}

// The operation ID that a client gives. Require refuses requests without one, also where a rule could do
// without it.
func ExampleRequire() {
	id := keyfuncs.Require(keyfuncs.IdempotencyKey())
	r := httptest.NewRequest(http.MethodPost, "/orders", nil)

	_, err := id(&keyfuncs.Request{Request: r})
	fmt.Println(err)
	r.Header.Set("Idempotency-Key", `"8e03978e-40d5-43dd-bc93-6894a57f9324"`)
	fmt.Println(id(&keyfuncs.Request{Request: r}))
	// Output:
	// keyfuncs: Require: IdempotencyKey(): nothing found
	// 8e03978e-40d5-43dd-bc93-6894a57f9324 <nil>
}

// A secret does not belong into the keys of Redis, so its hash does.
func ExampleHash() {
	session := keyfuncs.Hash(keyfuncs.Cookie("session"))
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.AddCookie(&http.Cookie{Name: "session", Value: "s3cret"})

	text, err := session(&keyfuncs.Request{Request: r})
	fmt.Println(len(text), err)
	// Output: 43 <nil>
}
