// Package pathvalue makes path parameters alike on all routers.
//
// Where the client has escaped needlessly, some routers match the path as it was sent, and return values
// with the escapes left in. Then /polls/final and /polls/%66inal are one poll with two names, and a voter
// has two votes.
package pathvalue

import (
	"net/url"
	"strings"
)

// Plain returns the value of a path parameter without escapes. Where the router has undone them already,
// the value differs from its place in the path as sent, and Plain returns it unchanged.
//
// The pattern is the route's, as ServeMux and chi ("/polls/{poll}") or gin and echo ("/polls/:poll") write
// it.
func Plain(u *url.URL, pattern, name, value string) string {
	if u.RawPath == "" || !strings.Contains(value, "%") || !asSent(u.RawPath, pattern, name, value) {
		return value
	}
	if plain, err := url.PathUnescape(value); err == nil {
		return plain
	}
	return value
}

// asSent reports whether the value stands in the raw path at the parameter's place in the pattern. Where
// the pattern does not have the parameter, any place will do.
func asSent(rawPath, pattern, name, value string) bool {
	segments := strings.Split(rawPath, "/")
	_, pattern, _ = strings.Cut(pattern, "/") // a pattern of ServeMux may have a method and a host in front
	for i, segment := range strings.Split("/"+pattern, "/") {
		if !isParameter(segment, name) {
			continue
		}
		if i >= len(segments) {
			return false
		}
		if strings.Contains(segment, "*") || strings.Contains(segment, "...") { // the rest of the path
			return strings.Join(segments[i:], "/") == strings.TrimPrefix(value, "/")
		}
		return segments[i] == value
	}
	return strings.Contains(rawPath, value)
}

func isParameter(segment, name string) bool {
	if rest, ok := strings.CutPrefix(segment, "{"+name); ok {
		return strings.HasPrefix(rest, "}") || strings.HasPrefix(rest, ":") || strings.HasPrefix(rest, "...")
	}
	return segment == ":"+name || segment == "*"+name
}
