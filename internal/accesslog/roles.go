package accesslog

import (
	"strconv"
	"strings"
	"time"
)

// Field is a field of a line: a variable of nginx without $, or a member of a JSON object, with dots between
// the names of objects in objects.
type Field struct{ Name, Value string }

// role is what a field says of the request.
type role uint8

const (
	unused role = iota
	begun       // when the request arrived; the others of time are when it ended, if a duration is known
	ended
	duration
	request // "GET /x HTTP/1.1"
	method
	uri
	query
	status
	remote
	host
	user
	header
)

// roleNames are the roles that users can give to fields.
var roleNames = map[string]role{"time": begun, "method": method, "uri": uri, "status": status,
	"remote": remote, "host": host, "request": request, "duration": duration}

// roles are the roles of known names. Of several names of a time, the one named first here counts.
var roles = map[string]role{
	"StartUTC": begun, "request_creation_time": begun,
	"msec": ended, "time_iso8601": ended, "time_local": ended, "time": ended, "ts": ended, "timestamp": ended,
	"@timestamp": ended, "datetime": ended,
	"request_time": duration, "duration": duration,
	"request":        request,
	"request_method": method, "method": method, "request.method": method, "RequestMethod": method,
	"verb": method, "http_method": method, "httpRequest.requestMethod": method,
	"request_uri": uri, "uri": uri, "request.uri": uri, "RequestPath": uri, "path": uri, "url": uri,
	"httpRequest.requestUrl": uri,
	"args":                   query, "query_string": query, "query": query,
	"status": status, "DownstreamStatus": status, "status_code": status, "response.status": status,
	"httpRequest.status": status,
	"remote_addr":        remote, "request.remote_ip": remote, "remote_ip": remote, "ClientAddr": remote,
	"client_addr": remote, "client_ip": remote, "remote": remote, "ip": remote, "httpRequest.remoteIp": remote,
	"host": host, "http_host": host, "request.host": host, "RequestHost": host,
	"remote_user": user, "user_id": user, "ClientUsername": user,
}

// HeaderOf returns the name of the header field that a field of a log holds, or "".
func HeaderOf(name string) string {
	for _, prefix := range []string{"http_", "request.headers.", "request_"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok && rest != "" {
			if prefix == "request_" && (rest[0] < 'A' || rest[0] > 'Z') {
				return "" // of nginx, such as request_length; header fields of Traefik begin with a capital
			}
			return strings.ReplaceAll(rest, "_", "-")
		}
	}
	return ""
}

// layouts are the forms of times as text.
var layouts = []string{"02/Jan/2006:15:04:05 -0700", time.RFC3339, "2006-01-02 15:04:05",
	"2006-01-02T15:04:05"}

// parseTime reads a time: as text, or as a number of seconds, milliseconds, microseconds or nanoseconds since
// 1970.
func parseTime(text string) (time.Time, bool) {
	if t, ok := parseUnix(text); ok {
		return t, true
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, text); err == nil {
			return t, inRange(t)
		}
	}
	return time.Time{}, false
}

func parseUnix(text string) (time.Time, bool) {
	whole, fraction, _ := strings.Cut(text, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n <= 0 {
		return time.Time{}, false
	}
	var t time.Time
	switch {
	case n < 1e11:
		nanos, err := strconv.ParseInt((fraction + "000000000")[:9], 10, 64)
		if err != nil || nanos < 0 {
			return time.Time{}, false
		}
		t = time.Unix(n, nanos)
	case n < 1e14:
		t = time.UnixMilli(n)
	case n < 1e17:
		t = time.UnixMicro(n)
	default:
		t = time.Unix(0, n)
	}
	return t, inRange(t)
}

// inRange reports whether limits can count at a time.
func inRange(t time.Time) bool { return t.Year() >= 1980 && t.Year() < 2200 }
