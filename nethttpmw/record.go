package nethttpmw

import (
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-go/gatehouse/core"
)

// keptFields are the fields of an answer's header that are kept and sent again. What is not named is the business of one answer
// (Date, Set-Cookie), or of the middlewares around the rules, which add it to the answer that is sent again as well.
var keptFields = []string{"Location", "Link", "Content-Location", "Content-Type", "Content-Language", "Content-Encoding", "ETag",
	"Last-Modified"}

// ofBody are those that mean nothing without the body.
var ofBody = []string{"Content-Type", "Content-Language", "Content-Encoding", "ETag", "Last-Modified"}

// fieldMost is the longest value of a field that is kept.
const fieldMost = 2048

// recording is an answer as it is kept for those who ask again: see core.Traits.KeepsOutcome.
type recording struct {
	most   int // bytes of the body
	header http.Header
	around map[string]string // kept fields that stood there before the handler ran: not its own
	fields map[string]string // those that it has sent
	lost   bool              // it has sent a Location that can not be kept
	length string            // its Content-Length, as the handler has set it
	body   []byte
	broken bool // the body is not all there: it is too long, was streamed, or the handler may have given up half-way
	taken  bool // the connection has been taken over: there is no answer to keep
}

// watch begins to record the answer with this header.
func (rec *recording) watch(header http.Header) {
	if rec != nil {
		rec.header = header
		rec.around = rec.present()
	}
}

// wrote notes a part of the body that the handler has written.
func (rec *recording) wrote(b []byte, err error) {
	if rec == nil {
		return
	}
	if err != nil || len(b) > rec.most-len(rec.body) {
		rec.broken, rec.body = true, nil
	}
	if !rec.broken {
		rec.body = append(rec.body, b...)
	}
}

// flushed notes that a part of the answer has been sent ahead: it is streamed.
func (rec *recording) flushed() {
	if rec != nil {
		rec.broken = true
	}
}

// take notes that the connection is taken over, or not.
func (rec *recording) take(taken bool) {
	if rec != nil {
		rec.taken = taken
	}
}

// begin notes the header that is about to be sent.
func (rec *recording) begin() {
	if rec == nil || rec.header == nil {
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

// present returns the kept fields that the header has now. Outcomes are kept as JSON, so a field that is not UTF-8 would come back as
// another one, and is rather left out.
func (rec *recording) present() map[string]string {
	fields := map[string]string{}
	for _, name := range keptFields {
		if value := strings.Join(rec.header.Values(name), ", "); value != "" && len(value) <= fieldMost && utf8.ValidString(value) {
			fields[name] = value
		}
	}
	return fields
}

// outcome returns what a guard that keeps so much of a body has to know of the answer. over says that nothing will be added to it;
// else the outcome is Incomplete where that may change it.
func (rec *recording) outcome(status, maxBody int, over bool) *core.Outcome {
	bodiless := status == http.StatusNoContent || status == http.StatusNotModified || rec.length == "0"
	over = over || bodiless && !rec.taken
	if rec.taken || !repeatable(status) || rec.lost && status/100 == 3 { // a redirection to nowhere would be a wrong answer
		return &core.Outcome{Incomplete: rec.taken && !over}
	}
	o := &core.Outcome{Status: status, Header: map[string]string{}, Incomplete: !over && maxBody > 0}
	whole := over && !rec.broken && len(rec.body) <= maxBody
	if whole {
		o.Body = rec.body
	}
	for name, value := range rec.fields {
		if whole || !slices.Contains(ofBody, name) {
			o.Header[name] = value
		}
	}
	return o
}

// repeatable reports whether an answer with this status can be sent again: not one that switches protocols.
func repeatable(status int) bool { return status >= http.StatusOK && status <= 999 }
