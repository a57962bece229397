package pipeline

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// ReplayedHeader is the field that marks a replayed response. Its value is "true".
//
// A replayed response has the body of the first one, and all header fields that the handler has set, such as
// Content-Security-Policy, with these exceptions: Set-Cookie, Date, those of the connection (RFC 9110,
// section 7.6.1), those about caching, those that name a single response, such as X-Request-Id, and those of
// rules, such as RateLimit. Fields of a middleware around the rules are not stored: it sets them again.
//
// An answer with fields of more than 8 KiB in all, or with one that is not UTF-8, is kept as one whose body
// is too long: as done, with its Location.
const ReplayedHeader = "Idempotent-Replayed"

// sameRequest is the default of Rule.Which for guards that keep outcomes: what makes two requests the same.
var sameRequest = keyfuncs.Fingerprint()

// keepsOutcome reports whether the rule's guard answers repetitions with the outcome of the first attempt.
func (r *mounted) keepsOutcome() bool { return r.traits.KeepsOutcome }

// record starts a recording of the response for a guard that keeps outcomes.
func (p *Passage) record(traits *core.Traits) {
	if p.recording == nil {
		p.recording = &recording{head: p.from.Method == http.MethodHead}
	}
	p.recording.most = max(p.recording.most, traits.MaxBody)
}

// replayOf returns the stored answer of a decision, and whether it can be replayed to this request: it is
// whole, and the client accepts its coding.
func replayOf(d core.Decision, r *http.Request) (*core.Outcome, bool) {
	o := core.OutcomeOf(d)
	return o, d.Reason == core.ReasonDone && sendable(o, r)
}

// sendable reports whether a stored answer is whole, and in a coding that the client accepts.
func sendable(o *core.Outcome, r *http.Request) bool {
	return o != nil && !o.Incomplete && repeatable(o.Status) &&
		acceptsCoding(r.Header["Accept-Encoding"], o.Header["Content-Encoding"])
}

// KeepResponse returns what is kept of a response: the fields that [ReplayedHeader] describes, and a body of
// at most maxBody bytes. The outcome is Incomplete, without a body, if the body is longer or shorter than the
// header says. It is for packages that keep responses for later, as guards of idempotency do.
func KeepResponse(status int, header http.Header, body []byte, maxBody int) *core.Outcome {
	rec := &recording{most: maxBody, header: header}
	rec.begin()
	rec.wrote(body, nil)
	return rec.outcome(status, maxBody, true)
}

// ReplayResponse answers with a response that [KeepResponse] has kept, and marks it with [ReplayedHeader]. It
// reports false, and writes nothing, if the outcome is Incomplete, or has a coding that the client does not
// accept.
func ReplayResponse(w http.ResponseWriter, r *http.Request, o *core.Outcome) bool {
	if !sendable(o, r) {
		return false
	}
	writeOutcome(w, r, o)
	return true
}

// replay sends a stored answer with the current figures. Like every refusal, it forbids caching.
func (f *Refusal) replay(w http.ResponseWriter, r *http.Request, o *core.Outcome) {
	f.setHeaders(w.Header(), new(values))
	writeOutcome(w, r, o)
}

// writeOutcome sends a stored answer, besides what is in the header already.
func writeOutcome(w http.ResponseWriter, r *http.Request, o *core.Outcome) {
	header := w.Header()
	for name, value := range o.Header {
		if slices.Contains(lists, name) {
			addToList(header, name, value)
		} else {
			header.Set(name, value)
		}
	}
	header.Set(ReplayedHeader, "true")
	expose(header)
	header.Set("X-Content-Type-Options", "nosniff")
	if o.Status != http.StatusNoContent && o.Status != http.StatusNotModified {
		header.Set("Content-Length", strconv.Itoa(len(o.Body)))
	}
	w.WriteHeader(o.Status)
	if len(o.Body) > 0 && r.Method != http.MethodHead {
		_, _ = w.Write(o.Body) // the client may have disconnected; they can ask again
	}
}

// pointToResult sets the Location of an operation that is done and whose answer is not replayed, so that the
// client can look at what it did.
func pointToResult(header http.Header, d core.Decision) {
	if o := core.OutcomeOf(d); o != nil && d.Reason == core.ReasonDone && o.Header["Location"] != "" {
		header.Set("Location", o.Header["Location"])
	}
}
