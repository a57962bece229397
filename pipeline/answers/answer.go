package answers

import (
	"net/http"
	"strconv"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

// By records what has refused the request, and the figures for the header.
func (f *Refusal) By(source *Source, r *http.Request, fields Fields) {
	f.source, f.fields = source, fields
	if o, ok := replayOf(f.Decision, r); ok {
		f.Status = o.Status
	} else if status := f.described().PageStatus; status != 0 {
		f.stranger = f.Decision.Attempt.Token == "" && r.Header.Get("Sec-Fetch-Mode") != "navigate"
		switch {
		case !isPageView(r):
		case f.stranger:
			f.Status = http.StatusServiceUnavailable
		default:
			f.Status = status
		}
	}
}

// Answer writes the response: by the Answer of the rule if it has one, else by [Refusal.Reply]. A stored
// answer of the same operation is replayed, and the rule's Answer is not called. Answer is for adapters. When
// the rule's Answer calls it, it writes what Reply writes.
func (f *Refusal) Answer(w http.ResponseWriter, r *http.Request) {
	_, stored := replayOf(f.Decision, r)
	if stored || f.replayed || f.source == nil || f.source.Answer == nil || f.standard {
		f.Reply(w, r)
		return
	}
	f.setHeaders(w.Header(), new(values))
	pointToResult(w.Header(), f.Decision)
	asked := *f
	asked.standard = true
	if !f.source.Answer(w, r, &asked) {
		f.Reply(w, r)
	}
}

// Reply writes the standard response: the status, the RateLimit fields, Retry-After, and a body with the
// reason. The Accept header of the request selects the form of the body (RFC 9110, section 12.5.1):
// application/problem+json (RFC 9457), unless the client prefers text/html or text/plain. A page says what
// happened and, where there is a Retry-After, when to come back. A HEAD request gets the header only.
// Cache-Control: no-store forbids caching, since the next response may differ. A stored answer of the same
// operation is replayed instead, if it is whole and the client accepts its coding. Otherwise Location
// points to the result, if the handler has set it. A claim that is done without a stored answer is answered
// with status 200, and with application/json in place of a problem.
func (f *Refusal) Reply(w http.ResponseWriter, r *http.Request) {
	if o, ok := replayOf(f.Decision, r); ok {
		f.replay(w, r, o)
		return
	}
	form := f.form(r)
	text := f.text(r, form)
	body := f.body(form, text, r)
	header := w.Header()
	v := make(values, 0, 6) // as many as most refusals have
	f.setHeaders(header, &v)
	pointToResult(header, f.Decision)
	v.set(header, "Content-Type", mediaTypes[form])
	if f.replayed {
		header.Set(ReplayedHeader, "true")
		Expose(header)
	}
	if form == formProblem && (f.replayed || f.deferral != nil) {
		header.Set("Content-Type", "application/json")
	}
	v.set(header, "X-Content-Type-Options", "nosniff")
	v.set(header, "Content-Length", strconv.Itoa(len(body)))
	if text.Lang != "" {
		header.Set("Content-Language", text.Lang)
	}
	if form == formPage {
		header.Add("Content-Security-Policy", f.pagePolicy()) // a further policy can only forbid more
	}
	switch {
	case f.described().PageStatus != 0:
		addToList(header, "Vary", "Accept, Accept-Language, Sec-Fetch-Mode, Cookie, "+TokenHeader)
	case len(header["Vary"]) == 0:
		v.set(header, "Vary", "Accept")
	default:
		addToList(header, "Vary", "Accept")
	}
	w.WriteHeader(f.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may have disconnected; the request is refused either way
	}
}

// setHeaders sets the fields that every refusal has, whoever writes the response.
func (f *Refusal) setHeaders(header http.Header, v *values) {
	f.fields.Set(header)
	if wait := f.RetryAfter(); wait > 0 {
		v.set(header, "Retry-After", strconv.FormatInt(int64(wait/time.Second), 10))
	}
	v.set(header, "Cache-Control", "no-store")
	if f.described().PageStatus != 0 && !f.stranger {
		header.Set("X-Robots-Tag", "noindex")
	}
	Expose(header)
	if f.deferral != nil {
		header.Set("Location", f.deferral.Location)
		exposeField(header, "Location")
	}
}

// values holds values of header fields, which share allocations.
type values []string

// set is http.Header.Set for a name in its canonical form. An append to the field's values makes a copy.
func (v *values) set(h http.Header, name, value string) {
	*v = append(*v, value)
	n := len(*v)
	h[name] = (*v)[n-1 : n : n]
}

// replay sends a stored answer with the current figures. Like every refusal, it forbids caching.
func (f *Refusal) replay(w http.ResponseWriter, r *http.Request, o *core.Outcome) {
	f.setHeaders(w.Header(), new(values))
	writeOutcome(w, r, o)
}
