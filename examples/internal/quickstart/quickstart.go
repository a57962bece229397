// Package quickstart tests the quick starts for gin, echo, net/http and chi with one table of requests.
package quickstart

import (
	"context"
	"encoding/json"
	"mime"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
)

// request is one row of the table, with the answer that it must get.
type request struct {
	name         string
	method, path string
	header       http.Header
	basicUser    string // the user of HTTP basic auth
	times        int    // how often it is sent, 0 means once; each answer is checked

	status int
	body   string // the whole body as JSON; for refusals only the members "reason" and "choices"
	retry  string // Retry-After
}

// Each row builds on the state that the rows before it left.
var table = []request{
	{name: "100 per minute", method: "GET", path: "/", times: 100, status: 200, body: `{"message":"hello"}`},
	{name: "the 101st", method: "GET", path: "/", status: 429, body: `{"reason":"limited"}`, retry: "60"},
	{name: "a header does not change the address", method: "GET", path: "/",
		header: http.Header{"X-Forwarded-For": {"198.51.100.7"}, "X-Real-Ip": {"198.51.100.7"}},
		status: 429, body: `{"reason":"limited"}`, retry: "60"},

	{name: "a vote without a user", method: "POST", path: "/polls/final/votes?choice=red", status: 401},
	{name: "a vote", method: "POST", path: "/polls/final/votes?choice=red", header: user("alice"),
		status: 201, body: `{"poll":"final","choice":"red"}`},
	{name: "a second vote", method: "POST", path: "/polls/final/votes?choice=blue", header: user("alice"),
		status: 409, body: `{"reason":"duplicate","choices":["red"]}`},
	{name: "the same voter, logged in another way", method: "POST", path: "/polls/final/votes?choice=blue",
		basicUser: "alice", status: 409, body: `{"reason":"duplicate","choices":["red"]}`},
	{name: "another voter", method: "POST", path: "/polls/final/votes?choice=blue", basicUser: "bob",
		status: 201, body: `{"poll":"final","choice":"blue"}`},
	{name: "no choice", method: "POST", path: "/polls/final/votes", header: user("carol"),
		status: 400, body: `{"reason":"no_key"}`},
	{name: "an unknown choice", method: "POST", path: "/polls/final/votes?choice=pink",
		header: user("carol"),
		status: 400, body: `{"reason":"invalid"}`},
	{name: "an unknown poll", method: "POST", path: "/polls/other/votes?choice=red",
		header: user("carol"),
		status: 409, body: `{"reason":"not_open"}`},

	{name: "an order without a user", method: "POST", path: "/sales/ticket/orders", status: 401},
	{name: "an order", method: "POST", path: "/sales/ticket/orders", header: user("alice", "1"),
		status: 201, body: `{"sku":"ticket","reservation":"alice|1"}`},
	{name: "the order again", method: "POST", path: "/sales/ticket/orders", header: user("alice", "1"),
		times: 3, status: 200, body: `{"reason":"replayed"}`},
	{name: "a second order", method: "POST", path: "/sales/ticket/orders", header: user("alice", "2"),
		status: 409, body: `{"reason":"duplicate"}`},
	{name: "another buyer with the same key", method: "POST", path: "/sales/ticket/orders",
		header: user("bob", "1"),
		status: 201, body: `{"sku":"ticket","reservation":"bob|1"}`},
	{name: "an item that is not on sale", method: "POST", path: "/sales/other/orders",
		header: user("alice", "3"),
		status: 503, body: `{"reason":"not_ready"}`},
}

// user makes the header of a user's request, with an Idempotency-Key if one is given.
func user(name string, key ...string) http.Header {
	h := http.Header{"X-User": {name}}
	for _, k := range key {
		h.Set("Idempotency-Key", `"`+k+`"`)
	}
	return h
}

// Test sends the table to an application with its own miniredis, whose clock stands still.
func Test(t *testing.T, newApp func(context.Context, *core.Engine) (http.Handler, error)) {
	t.Helper()
	m := miniredis.RunT(t)
	m.ClockTTL(true)
	m.SetTime(time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC))
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })

	// A test machine may be busy, and the deadline is not under test.
	app, err := newApp(t.Context(), core.New(rdb, core.WithDeadline(30*time.Second)))
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range table {
		for range max(q.times, 1) {
			q.send(t, app)
		}
	}
}

func (q request) send(t *testing.T, app http.Handler) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), q.method, q.path, nil)
	for name, values := range q.header {
		r.Header[name] = values
	}
	if q.basicUser != "" {
		r.SetBasicAuth(q.basicUser, "any")
	}
	w := httptest.NewRecorder()
	app.ServeHTTP(w, r)

	if w.Code != q.status {
		t.Errorf("%s: status %d, want %d (body %s)", q.name, w.Code, q.status, w.Body)
		return
	}
	if got := w.Header().Get("Retry-After"); got != q.retry {
		t.Errorf("%s: Retry-After %q, want %q", q.name, got, q.retry)
	}
	if q.body == "" {
		return
	}
	media := "application/json"
	if q.status >= 400 {
		media = "application/problem+json"
	}
	if got, _, _ := mime.ParseMediaType(w.Header().Get("Content-Type")); got != media {
		t.Errorf("%s: Content-Type %q, want %q", q.name, got, media)
	}
	if got := essence(t, w.Body.Bytes()); got != essence(t, []byte(q.body)) {
		t.Errorf("%s: body %s, want %s", q.name, got, q.body)
	}
}

// essence returns a JSON object in canonical form. Of a refusal it keeps only reason and choices.
func essence(t *testing.T, body []byte) string {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal(body, &object); err != nil {
		t.Errorf("not a JSON object: %v: %s", err, body)
		return ""
	}
	_, refused := object["reason"]
	for name := range object {
		if refused && name != "reason" && name != "choices" {
			delete(object, name)
		}
	}
	text, err := json.Marshal(object)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}
