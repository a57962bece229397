package gateway

import (
	"fmt"
	"net/http"
	"strings"
)

// From is the proxy that asks.
type From uint8

// The proxies.
const (
	_ From = iota
	// Nginx asks by auth_request, with X-Original-Method and X-Original-URI.
	Nginx
	// Traefik asks by forwardAuth, with X-Forwarded-Method, X-Forwarded-Host and X-Forwarded-Uri.
	Traefik
	// Caddy asks by forward_auth, with X-Forwarded-Method and X-Forwarded-Uri.
	Caddy
	// HAProxy asks by the Lua of the guide, with X-Original-Method and X-Original-URI.
	HAProxy
	// Envoy asks by ext_authz over HTTP: with the method and the path of the client, behind the path prefix
	// [CheckPath].
	Envoy
)

// The paths at which a proxy asks. CheckPath asks about a request. At RefusalPath nginx fetches the answer to
// a request that was refused.
const (
	CheckPath   = "/check"
	RefusalPath = "/refusal"
)

// The fields between the proxy and the gateway, besides those of clients.
const (
	statusField  = "Gatehouse-Status"
	refusalField = "Gatehouse-Refusal"
)

// dialect is how a proxy asks, and what it understands.
type dialect struct {
	name string
	// method, target and host are the fields that have them. Empty: they are the request's own.
	method, target, host string
	// allowed is the status that lets a request pass.
	allowed int
	// encloses: the proxy shows no answer of ours, so a refusal is enclosed in a field, and fetched at
	// RefusalPath.
	encloses bool
	// reads: the proxy refuses by [statusField], so a refusal may have any status.
	reads bool
	// failed: the proxy takes 5xx for a failure of ours, which may let the request pass. So refusals have none.
	failed bool
}

var dialects = [...]dialect{
	Nginx: {name: "nginx", method: "X-Original-Method", target: "X-Original-Uri", allowed: http.StatusNoContent,
		encloses: true},
	Traefik: {name: "traefik", method: "X-Forwarded-Method", target: "X-Forwarded-Uri", host: "X-Forwarded-Host",
		allowed: http.StatusNoContent},
	Caddy: {name: "caddy", method: "X-Forwarded-Method", target: "X-Forwarded-Uri",
		allowed: http.StatusNoContent},
	HAProxy: {name: "haproxy", method: "X-Original-Method", target: "X-Original-Uri",
		allowed: http.StatusNoContent, reads: true},
	Envoy: {name: "envoy", allowed: http.StatusOK, failed: true},
}

// String returns the name of the proxy, such as nginx.
func (f From) String() string {
	if f == 0 || int(f) >= len(dialects) {
		return fmt.Sprintf("From(%d)", uint8(f))
	}
	return dialects[f].name
}

// ParseFrom returns the proxy of a name, such as nginx.
func ParseFrom(name string) (From, error) {
	var names []string
	for f := range dialects[1:] {
		if dialects[f+1].name == name {
			return From(f + 1), nil
		}
		names = append(names, dialects[f+1].name)
	}
	return 0, fmt.Errorf("gateway: no proxy is named %q: use %s", name, strings.Join(names, ", "))
}
