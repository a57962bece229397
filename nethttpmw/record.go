package nethttpmw

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-go/gatehouse/core"
)

// keptFields are the header fields that are stored with an answer and replayed: those that say what the body
// is and where the result is, and those that let a page of another origin read it. Every other field belongs
// to a single response (Date, Set-Cookie), or comes from the middlewares around the rules, which add it to a
// replayed response as well.
var keptFields = []string{
	"Location", "Content-Location", "Link", "Vary",
	"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Access-Control-Expose-Headers",
	"Content-Type", "Content-Language", "Content-Encoding", "Content-Disposition", "ETag", "Last-Modified",
}

// ofBody are the fields that have no meaning without the body.
var ofBody = []string{"Content-Type", "Content-Language", "Content-Encoding", "Content-Disposition", "ETag",
	"Last-Modified"}

// lists are the fields to which the middlewares around the rules may add members of their own.
var lists = []string{"Vary", "Access-Control-Expose-Headers"}

// fieldMost is the maximum length of a field's value that is kept.
const fieldMost = 2048

// recording is a response as it is kept for repetitions: see core.Traits.KeepsOutcome.
type recording struct {
	most   int  // the maximum size of the body, in bytes
	head   bool // the request is a HEAD request, whose answer has a length and no body
	header http.Header
	around map[string]string // kept fields that were set before the handler ran, so not by it
	fields map[string]string // kept fields that the handler has set
	lost   bool              // its Location cannot be kept
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

// recordHijack records whether the connection is hijacked, if the response is recorded.
func (p *Passage) recordHijack(taken bool) {
	if p.recording != nil {
		p.recording.taken = taken
	}
}

// recordHeader records the header that is about to be sent, if the response is recorded.
func (p *Passage) recordHeader() {
	if p.recording != nil {
		p.recording.begin()
	}
}

// begin records the header that is about to be sent.
func (rec *recording) begin() {
	if rec.header == nil {
		return
	}
	rec.fields, rec.length = rec.present(), rec.header.Get("Content-Length")
	rec.lost = rec.header.Get("Location") != "" && rec.fields["Location"] == ""
	for name, value := range rec.around {
		if rec.fields[name] == value {
			delete(rec.fields, name)
		}
	}
}

// present returns the kept fields in the header now. Outcomes are stored as JSON, which would change a value
// that is not UTF-8, so such a field is left out.
func (rec *recording) present() map[string]string {
	fields := map[string]string{}
	for _, name := range keptFields {
		if value := strings.Join(rec.header.Values(name), ", "); value != "" && len(value) <= fieldMost &&
			utf8.ValidString(value) {
			fields[name] = value
		}
	}
	return fields
}

// outcome returns what a guard that keeps maxBody bytes of a body needs to know of the response. over means
// that the response is complete. The outcome is Incomplete if the answer is not whole: it is longer than
// maxBody, was streamed or broke off, or the rest may still come: then it is Pending, too.
func (rec *recording) outcome(status, maxBody int, over bool) *core.Outcome {
	bodiless := status == http.StatusNoContent || status == http.StatusNotModified || rec.length == "0"
	over = over || bodiless && !rec.taken
	if !rec.replayable(status) {
		pending := rec.taken && !over
		return &core.Outcome{Incomplete: pending, Pending: pending}
	}
	whole := over && (bodiless || !rec.broken && len(rec.body) <= maxBody && rec.full())
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
	lost := rec.lost && status/100 == 3 // a redirection without its Location would be wrong
	return !rec.taken && !lost && repeatable(status)
}

// kept returns the fields to keep: without the whole body, only those that have a meaning without it.
func (rec *recording) kept(whole bool) map[string]string {
	fields := map[string]string{}
	for name, value := range rec.fields {
		if whole || !slices.Contains(ofBody, name) {
			fields[name] = value
		}
	}
	return fields
}

// repeatable reports whether a response with this status can be replayed. One that switches protocols cannot.
func repeatable(status int) bool { return status >= http.StatusOK && status <= 999 }
