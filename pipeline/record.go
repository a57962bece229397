package pipeline

import (
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// unkeptFields are the header fields that are not stored with an answer. Some belong to a single response
// or to its connection. Some say how a response is cached, and replays are not cached. The rest are figures
// and tickets of rules; a replay has its own. Every other field that the handler sets is kept, since
// clients act by it: a body needs its Content-Security-Policy.
var unkeptFields = map[string]bool{
	"Set-Cookie": true, "Set-Cookie2": true, "Date": true, "Content-Length": true,
	"Server-Timing": true, "X-Request-Id": true, "X-Correlation-Id": true, "Traceparent": true,
	"Tracestate": true, "Traceresponse": true,
	"Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Proxy-Authenticate": true,
	"Proxy-Authentication-Info": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
	"Age": true, "Cache-Control": true, "Cdn-Cache-Control": true, "Expires": true, "Pragma": true,
	"Surrogate-Control": true,
}

// fieldsMost is the maximum size of the fields that are kept with an answer, names and values, in bytes.
const fieldsMost = 8 << 10

// recording is a response as it is kept for repetitions: see core.Traits.KeepsOutcome.
type recording struct {
	most   int  // the maximum size of the body, in bytes
	head   bool // the answer to a HEAD request has a length and no body
	header http.Header
	around map[string]string // kept fields that were set before the handler ran, so not by it
	fields map[string]string // kept fields that the handler has set
	lost   bool              // a field that the handler has set cannot be kept
	length string            // the Content-Length that the handler has set
	body   []byte
	broken bool // the body is incomplete: too long, streamed, or a write failed
	taken  bool // the connection was hijacked: there is no response to keep
}

// watch begins to record the response with this header.
func (rec *recording) watch(header http.Header) {
	rec.header = header
	rec.around = rec.present()
}

// wrote records a part of the body.
func (rec *recording) wrote(b []byte, err error) {
	if err != nil || len(b) > rec.most-len(rec.body) {
		rec.broken, rec.body = true, nil
	}
	if !rec.broken {
		rec.body = append(rec.body, b...)
	}
}

// begin records the header that is about to be sent.
func (rec *recording) begin() {
	if rec.header == nil {
		return
	}
	rec.fields, rec.length = rec.present(), rec.header.Get("Content-Length")
	size := 0
	for name, value := range rec.fields {
		if rec.around[name] == value {
			delete(rec.fields, name)
			continue
		}
		size += len(name) + len(value)
		// Outcomes are stored as JSON, which would change a value that is not UTF-8.
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			rec.lost = true
			delete(rec.fields, name)
		}
	}
	if size > fieldsMost {
		rec.lost = true
		located := rec.fields["Location"]
		if rec.fields = map[string]string{}; located != "" && len(located) <= fieldsMost/2 {
			rec.fields["Location"] = located
		}
	}
}

// present returns the fields in the header now that may be kept.
func (rec *recording) present() map[string]string {
	fields := map[string]string{}
	hop := rec.header["Connection"] // names more fields of the connection
	for name, values := range rec.header {
		canonical := http.CanonicalHeaderKey(name)
		if unkeptFields[canonical] || answers.IsOwn(canonical) || strings.HasPrefix(name, http.TrailerPrefix) ||
			isListed(hop, name) {
			continue
		}
		if value := strings.Join(values, ", "); value != "" {
			fields[canonical] = value
		}
	}
	return fields
}

// isListed reports whether the lines have a member of this name.
func isListed(lines []string, name string) bool {
	for _, line := range lines {
		for member := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(member), name) {
				return true
			}
		}
	}
	return false
}

// outcome returns what a guard that keeps maxBody bytes of a body needs to know of the response. over means
// that the response is complete. The outcome is Incomplete if the answer is not whole: it is longer than
// maxBody, was streamed or broke off, has a field that cannot be kept, or the rest may still come: then it is
// Pending, too.
func (rec *recording) outcome(status, maxBody int, over bool) *core.Outcome {
	bodiless := status == http.StatusNoContent || status == http.StatusNotModified || rec.length == "0"
	over = over || bodiless && !rec.taken
	if !rec.replayable(status) {
		pending := rec.taken && !over
		return &core.Outcome{Incomplete: pending, Pending: pending}
	}
	whole := over && !rec.lost && (bodiless || !rec.broken && len(rec.body) <= maxBody && rec.full())
	o := &core.Outcome{Status: status, Header: rec.kept(whole), Incomplete: !whole, Pending: !over}
	if whole {
		o.Body = rec.body
	}
	return o
}

// full reports whether the body is as long as the handler has promised.
func (rec *recording) full() bool {
	return rec.head || rec.length == "" || rec.length == strconv.Itoa(len(rec.body))
}

// replayable reports whether the response can be replayed with this status.
func (rec *recording) replayable(status int) bool {
	// a redirection without its Location would be wrong
	lost := rec.lost && status/100 == 3 && rec.fields["Location"] == ""
	return !rec.taken && !lost && answers.Repeatable(status)
}

// kept returns the fields to keep: without the whole body, only where the result is.
func (rec *recording) kept(whole bool) map[string]string {
	if whole {
		return rec.fields
	}
	fields := map[string]string{}
	if location := rec.fields["Location"]; location != "" {
		fields["Location"] = location
	}
	return fields
}
