package gateway_test

import (
	"net/http"
	"testing"

	"github.com/gatehouse-go/gatehouse/ops/gateway"
)

// logins is a file of rules in front of its routes.
const logins = `
guards:
  logins: {sliding_window: {limits: "100/h"}}
rules:
  login: [{guard: logins, who: ip}]
`

// TestEachSpellingOfAHostMeetsItsRoutes: a host in capitals, with a dot at its end or with a port led around the
// routes of that host.
//
// Promise (Gateway): A route with a host holds for each spelling of it: capitals, a port, a dot at its end.
func TestEachSpellingOfAHostMeetsItsRoutes(t *testing.T) {
	live, _ := watch(t, frozen(t), logins+`routes:
  POST shop.example/login: login
  "POST [2001:db8::1]/login": login
...
`)
	for _, from := range all {
		p := &proxy{from, gateway.Handler(live, gateway.Options{From: from})}
		for _, host := range []string{"shop.example", "SHOP.example", "shop.example.", "Shop.Example.:8443",
			"shop.example:80", "shop.example:", "[2001:db8::1]", "[2001:DB8:0::1]:80"} {
			r := p.asks(http.MethodPost, "/login")
			r.Host = host
			if from == gateway.Traefik {
				r.Header.Set("X-Forwarded-Host", host)
			}
			resp := p.do(r)
			if got := met(resp, "logins"); got == "-" {
				t.Errorf("%v: %s: met no rule, status %d", from, host, resp.StatusCode)
			}
		}
	}
}

// TestEscapesInAFoldedPath: an escaped capital stayed one, and led around the route of the lower case.
func TestEscapesInAFoldedPath(t *testing.T) {
	live, _ := watch(t, frozen(t), logins+`routes:
  /admin: login
  /übung/{a}: login
...
`)
	for _, from := range all {
		o := gateway.Options{From: from, FoldPath: true, EncodedSlashes: true}
		p := &proxy{from, gateway.Handler(live, o)}
		for _, target := range []string{"/ADMIN", "/%41dmin", "/%41DMIN/", "/a%44MIN?A=B", "/%C3%9CBUNG/a",
			"/ÜBUNG/A", "/übung/%41%FF", "/%c3%9cbung/A%2FB", "/%C3%BC%42ung/%25", "/x/../%c3%9Cbung/%20"} {
			resp := p.ask(http.MethodPost, target)
			if got := met(resp, "logins"); got == "-" {
				t.Errorf("%v: %s: met no rule, status %d", from, target, resp.StatusCode)
			}
		}
	}
}
