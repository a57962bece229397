package answers

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/gatehouse-go/gatehouse/core"
)

// ReplayedHeader is the field that marks a replayed response. Its value is "true".
//
// A replayed response has the body of the first one, and the header fields that the handler has set, such
// as Content-Security-Policy. It has no Set-Cookie and no Date. It has no fields of the connection (RFC
// 9110, section 7.6.1), about caching, or of rules, such as RateLimit, and none that name a single
// response, such as X-Request-Id. Fields of a middleware around the rules are not stored: it sets them
// again.
//
// An answer is kept only as done, with its Location, if its body is too long, its fields exceed 8 KiB in
// all, or a field is not UTF-8.
const ReplayedHeader = "Idempotent-Replayed"

// sharedLists are the fields to which the middlewares around the rules may add members of their own.
var sharedLists = []string{"Vary", "Access-Control-Expose-Headers"}

// Repeatable reports whether a response with this status can be replayed. A switch of protocols cannot.
func Repeatable(status int) bool { return status >= http.StatusOK && status <= 999 }

// replayOf returns the stored answer of a decision, and whether it can be replayed to this request: it is
// whole, and the client accepts its coding.
func replayOf(d core.Decision, r *http.Request) (*core.Outcome, bool) {
	o := core.OutcomeOf(d)
	return o, d.Reason == core.ReasonDone && sendable(o, r)
}

// sendable reports whether a stored answer is whole, and in a coding that the client accepts.
func sendable(o *core.Outcome, r *http.Request) bool {
	return o != nil && !o.Incomplete && Repeatable(o.Status) &&
		acceptsCoding(r.Header["Accept-Encoding"], o.Header["Content-Encoding"])
}

// ReplayResponse answers with a response that the pipeline has kept, and marks it with [ReplayedHeader]. It
// reports false, and writes nothing, if the outcome is Incomplete, or has a coding that the client does not
// accept.
func ReplayResponse(w http.ResponseWriter, r *http.Request, o *core.Outcome) bool {
	if !sendable(o, r) {
		return false
	}
	writeOutcome(w, r, o)
	return true
}

// writeOutcome sends a stored answer, besides what is in the header already.
func writeOutcome(w http.ResponseWriter, r *http.Request, o *core.Outcome) {
	header := w.Header()
	for name, value := range o.Header {
		if slices.Contains(sharedLists, name) {
			addToList(header, name, value)
		} else {
			header.Set(name, value)
		}
	}
	header.Set(ReplayedHeader, "true")
	Expose(header)
	header.Set("X-Content-Type-Options", "nosniff")
	if o.Status != http.StatusNoContent && o.Status != http.StatusNotModified {
		header.Set("Content-Length", strconv.Itoa(len(o.Body)))
	}
	w.WriteHeader(o.Status)
	if len(o.Body) > 0 && r.Method != http.MethodHead {
		_, _ = w.Write(o.Body) // the client may have disconnected; they can ask again
	}
}

// pointToResult sets the Location of a finished operation whose answer is not replayed, so that the client
// can look at its result.
func pointToResult(header http.Header, d core.Decision) {
	if o := core.OutcomeOf(d); o != nil && d.Reason == core.ReasonDone && o.Header["Location"] != "" {
		header.Set("Location", o.Header["Location"])
	}
}

// IsOwn reports whether a header field, in its canonical form, is one of the rules' own.
func IsOwn(field string) bool {
	switch field {
	case fieldPolicy, fieldLimit, fieldMax, fieldRemaining, fieldReset, ReplayedHeader, TokenHeader:
		return true
	}
	return false
}
