package answers

import (
	"net/http"
	"strings"
)

// exposable are the fields that pages of other origins may read only if they are exposed.
var exposable = []string{"RateLimit", "RateLimit-Policy", "Retry-After", "X-RateLimit-Limit",
	"X-RateLimit-Remaining", "X-RateLimit-Reset", ReplayedHeader, TokenHeader}

const exposedFields = "Access-Control-Expose-Headers"

// Expose lets pages of other origins read the fields that are there, if the response is for them.
func Expose(h http.Header) {
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
