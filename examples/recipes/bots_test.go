package recipes

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/gatehousetest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

func TestBots(t *testing.T) {
	gate := gatehousetest.New(t)
	page := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	app := Bots(gate.Engine, keyfuncs.NewList(keyfuncs.IP(), "192.0.2.1"),
		keyfuncs.NewList(keyfuncs.IP(), "198.51.100.0/24"), page, page)
	from := func(address, path string) func() *http.Request {
		return func() *http.Request {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.RemoteAddr = address + ":1234"
			return r
		}
	}

	gate.Allows(app, 300, from("192.0.2.1", "/"))
	gate.Refuses(app, http.StatusForbidden, 0, from("198.51.100.7", "/"))

	script := from("203.0.113.7", "/")
	gate.Allows(app, 10, script)
	for range 61 {
		gate.Refuses(app, http.StatusTooManyRequests, time.Second, script)
	}
	gate.Refuses(app, http.StatusTooManyRequests, 5*time.Minute, script)
	gate.Allows(app, 1, from("203.0.113.8", "/"))
	gate.Advance(5 * time.Minute)
	gate.Allows(app, 10, script)

	for i := range 5 {
		gate.Allows(app, 10, from("203.0.113."+string(rune('1'+i)), "/search"))
	}
	gate.Refuses(app, http.StatusTooManyRequests, time.Second, from("203.0.113.9", "/search"))
}
