package accesslog

import (
	"net/netip"
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
	roleCount
)

// roleNames are the roles that users can give to fields.
var roleNames = map[string]role{"time": begun, "method": method, "uri": uri, "status": status,
	"remote": remote, "host": host, "request": request, "duration": duration}

// roles are the roles of known names.
var roles = map[string]role{
	"StartUTC": begun, "request_creation_time": begun,
	"msec": ended, "time_iso8601": ended, "time_local": ended, "time": ended, "ts": ended, "timestamp": ended,
	"@timestamp": ended, "datetime": ended, "date time": ended,
	"request_time": duration, "duration": duration, "latency": duration, "latency_human": duration,
	"latency_ms": duration, "duration_ms": duration, "duration_ns": duration, "duration_seconds": duration,
	"elapsed": duration, "elapsed_ms": duration, "response_time": duration, "response_time_ms": duration,
	"took": duration, "took_ms": duration, "time-taken": duration,
	"request":        request,
	"request_method": method, "method": method, "request.method": method, "RequestMethod": method,
	"verb": method, "http_method": method, "httpRequest.requestMethod": method, "cs-method": method,
	"http.request.method": method,
	"request_uri":         uri, "uri": uri, "request.uri": uri, "RequestPath": uri, "path": uri, "url": uri,
	"httpRequest.requestUrl": uri, "cs-uri": uri, "cs-uri-stem": uri, "url.path": uri, "url.original": uri,
	"args": query, "query_string": query, "query": query, "cs-uri-query": query, "url.query": query,
	"status": status, "DownstreamStatus": status, "status_code": status, "response.status": status,
	"httpRequest.status": status, "sc-status": status, "http.response.status_code": status,
	"remote_addr": remote, "request.remote_ip": remote, "request.remote_addr": remote, "remote_ip": remote,
	"ClientAddr": remote, "client_addr": remote, "client_ip": remote, "remote": remote, "ip": remote,
	"httpRequest.remoteIp": remote, "c-ip": remote, "client.ip": remote, "source.ip": remote,
	"client.address": remote,
	"host":           host, "http_host": host, "request.host": host, "RequestHost": host, "cs-host": host,
	"cs(Host)": host, "x-host-header": host, "url.domain": host,
	"remote_user": user, "user_id": user, "ClientUsername": user, "cs-username": user,
}

// ranks orders the fields of one role, of which the lowest counts; others have 4. The peer's address goes
// before what a program has made of it, the whole target before the path, the exact before the rounded time.
var ranks = map[string]int{
	"msec": 1, "time_iso8601": 2, "time_local": 2,
	"latency_human": 1,
	"remote_addr":   1, "request.remote_ip": 1, "request.remote_addr": 1, "remote_ip": 1,
	"request_uri": 1, "uri": 1, "request.uri": 1, "url.original": 1, "cs-uri": 1, "path": 5, "url.path": 5,
	"x-host-header": 1,
}

func rankOf(name string) int {
	if n, ok := ranks[name]; ok {
		return n
	}
	return 4
}

// HeaderOf returns the name of the header field that a field of a log holds, or "".
func HeaderOf(name string) string {
	if name == "x-forwarded-for" {
		return "X-Forwarded-For"
	}
	if rest, ok := strings.CutPrefix(name, "cs("); ok && strings.HasSuffix(rest, ")") {
		return strings.TrimSuffix(rest, ")")
	}
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

// isAddress reports whether a text is an IP address, perhaps with a port.
func isAddress(text string) bool {
	if text == "" || len(text) > 80 {
		return false
	}
	if _, err := netip.ParseAddr(text); err == nil {
		return true
	}
	if _, err := netip.ParseAddrPort(text); err == nil {
		return true
	}
	if text[0] == '[' && text[len(text)-1] == ']' {
		_, err := netip.ParseAddr(text[1 : len(text)-1])
		return err == nil
	}
	return false
}

// units are the units of times and durations that have only numbers.
var units = map[string]time.Duration{"s": time.Second, "ms": time.Millisecond, "us": time.Microsecond,
	"ns": time.Nanosecond}

// cutUnit cuts the unit off a field: "latency:ns".
func cutUnit(field string) (name string, unit time.Duration, ok bool) {
	at := strings.LastIndexByte(field, ':')
	if at < 1 || units[field[at+1:]] == 0 {
		return field, 0, false
	}
	return field[:at], units[field[at+1:]], true
}

// unitOfName returns the unit that stands in the name of a field.
func unitOfName(name string) time.Duration {
	at := strings.LastIndexByte(name, '_')
	if at < 1 {
		return 0
	}
	if name[at+1:] == "seconds" {
		return time.Second
	}
	return units[name[at+1:]]
}

// inSeconds are fields that hold seconds if they have fractions: those of nginx, Caddy and CloudFront, which
// write all others in another form.
var inSeconds = map[string]bool{"request_time": true, "duration": true, "time-taken": true}

// maxTook is the longest duration that is subtracted.
const maxTook = 1e6 * time.Second

// durationOf reads a duration: one with a unit, such as "12ms", or a number of units. The unit 0 is unknown.
func durationOf(text string, unit time.Duration) (time.Duration, bool) {
	if last := text[len(text)-1]; last == 's' {
		d, err := time.ParseDuration(strings.ReplaceAll(text, " ", ""))
		return d, err == nil && d >= 0 && d < maxTook
	}
	n, err := strconv.ParseFloat(text, 64)
	if unit == 0 || err != nil || !(n >= 0 && n*float64(unit) < float64(maxTook)) {
		return 0, false
	}
	return time.Duration(n * float64(unit)), true
}

// layouts are the forms of times as text. Fractions of a second are read behind the seconds of each.
var layouts = []string{
	"02/Jan/2006:15:04:05 -0700",
	"2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05",
	"2006-01-02 15:04:05", "2006-01-02 15:04:05Z0700", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05 -0700",
	"2006/01/02 15:04:05",   // package log of Go, and Caddy's "wall"
	"2006/01/02 - 15:04:05", // gin
	time.RFC1123, time.RFC1123Z, time.RFC850, time.UnixDate, time.ANSIC,
	"02/Jan/2006:15:04:05",
}

// clock reads times.
type clock struct {
	layouts []string
	known   int // the layout of the last
	last    string
	unit    time.Duration
	at      time.Time
}

// parse reads a time: as text, or as a number of seconds, milliseconds, microseconds or nanoseconds since
// 1970, which its size tells unless there is a unit.
func (c *clock) parse(text string, unit time.Duration) (time.Time, bool) {
	if text == c.last && unit == c.unit {
		return c.at, true
	}
	t, ok := parseUnix(text, unit)
	for i := 0; !ok && i < len(c.layouts); i++ {
		at := (c.known + i) % len(c.layouts)
		var err error
		if t, err = time.Parse(c.layouts[at], text); err == nil {
			if ok = inRange(t); !ok {
				break
			}
			c.known = at
		}
	}
	if ok {
		c.last, c.unit, c.at = text, unit, t
	}
	return t, ok
}

func parseUnix(text string, unit time.Duration) (time.Time, bool) {
	whole, fraction, _ := strings.Cut(text, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n <= 0 {
		return time.Time{}, false
	}
	if unit == 0 {
		unit = unitOfSize(n)
	}
	var t time.Time
	switch unit {
	case time.Second:
		t = time.Unix(n, 0)
	case time.Millisecond:
		t = time.UnixMilli(n)
	case time.Microsecond:
		t = time.UnixMicro(n)
	default:
		t = time.Unix(0, n)
	}
	if fraction != "" && unit > time.Nanosecond {
		part, err := strconv.ParseInt((fraction + "000000000")[:9], 10, 64)
		if err != nil || part < 0 {
			return time.Time{}, false
		}
		t = t.Add(time.Duration(part) * unit / 1e9)
	}
	return t, inRange(t)
}

// unitOfSize returns the unit in which a number since 1970 is a time of these decades.
func unitOfSize(n int64) time.Duration {
	switch {
	case n < 1e11:
		return time.Second
	case n < 1e14:
		return time.Millisecond
	case n < 1e17:
		return time.Microsecond
	}
	return time.Nanosecond
}

// inRange reports whether limits can count at a time.
func inRange(t time.Time) bool { return t.Year() >= 1980 && t.Year() < 2200 }
