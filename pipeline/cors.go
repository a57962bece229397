package pipeline

import (
	"net/http"
	"strings"
)

// isPreflight reports whether the request is a CORS preflight as browsers send it (Fetch standard, section
// "CORS-preflight fetch"): without a body and without credentials. A request that has either is none, so that
// nobody who is logged in passes the rules by calling a request a preflight.
func isPreflight(r *http.Request) bool {
	h := r.Header
	return r.Method == http.MethodOptions && h.Get("Origin") != "" &&
		h.Get("Access-Control-Request-Method") != "" && r.ContentLength == 0 &&
		h.Get("Cookie") == "" && h.Get("Authorization") == ""
}

// exposable are the fields that pages of other origins may read only if they are exposed.
var exposable = []string{"RateLimit", "RateLimit-Policy", "Retry-After", "X-RateLimit-Limit",
	"X-RateLimit-Remaining", "X-RateLimit-Reset", ReplayedHeader, TokenHeader}

const exposedFields = "Access-Control-Expose-Headers"

// expose lets pages of other origins read the fields that are there, if the response is for them.
func expose(h http.Header) {
	if allowed := h["Access-Control-Allow-Origin"]; len(allowed) == 0 || allowed[0] == "" {
		return
	}
	var names []string
	for _, name := range exposable {
		if h.Get(name) != "" && !exposes(h, name) {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		h.Add(exposedFields, strings.Join(names, ", "))
	}
}

// exposeField lets pages of other origins read one more field, if the response is for them.
func exposeField(h http.Header, name string) {
	if allowed := h["Access-Control-Allow-Origin"]; len(allowed) > 0 && allowed[0] != "" && !exposes(h, name) {
		h.Add(exposedFields, name)
	}
}

// exposes reports whether the header exposes the field. For requests with credentials "*" is a name like any
// other.
func exposes(h http.Header, name string) bool {
	all := h.Get("Access-Control-Allow-Credentials") != "true"
	for _, line := range h[exposedFields] {
		for listed := range strings.SplitSeq(line, ",") {
			if listed = strings.TrimSpace(listed); strings.EqualFold(listed, name) || all && listed == "*" {
				return true
			}
		}
	}
	return false
}
