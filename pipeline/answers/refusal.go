package answers

import (
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

// Refusal is the response to a request that a rule refused.
type Refusal struct {
	// Status is the HTTP status.
	Status int
	// Reason is the reason of the refusal. The body contains it.
	Reason core.Reason
	// Decision is the decision of the guard or of Bans, as far as there is one. Its Guard is always set.
	Decision core.Decision
	// Missing is the name of the field that the request lacks, with ReasonNoKey, where clients know it: see
	// [keyfuncs.FieldOf]. The standard text has it.
	Missing string
	// Banned reports that the Bans of the rule have refused, not its guard.
	Banned bool

	standard bool      // Source.Answer was called
	replayed bool      // the operation is done, so this is no refusal
	stranger bool      // has no token and does not navigate, as a search engine: see kit.Answer.PageStatus
	source   *Source   // the rule that refused; nil: none
	answer   *answer   // nil in a Refusal that this package has not made
	deferral *Deferral // the request runs later; nil: it does not
	fields   Fields
}

// Source is what refuses requests, and how its refusals are answered: a guard in a rule.
type Source struct {
	// Name and Traits are what the guard has said of itself, and Logger returns where it logs.
	Name   string
	Traits core.Traits
	Logger func() *slog.Logger
	// Headers says which figures clients see.
	Headers Headers
	// Texts returns the text of a refusal. Nil: the standard text.
	Texts func(r *http.Request, refusal *Refusal) Text
	// Answer answers in place of [Refusal.Reply], and reports whether it has. Nil: it does not.
	Answer func(w http.ResponseWriter, r *http.Request, refusal *Refusal) (answered bool)

	constant atomic.Pointer[constant]
}

// Deferral is what a client is told about a request that runs later.
type Deferral struct {
	// Location is the URL at which the client asks for the answer.
	Location string
	// RetryAfter is how long the client should wait before that. It is answered in whole seconds, 1 at least.
	RetryAfter time.Duration
	// Conflict reports that the operation ID belongs to another request. This one is answered with 422, and is
	// not stored.
	Conflict bool
}

// Refuse makes a refusal with the answer of the table.
func Refuse(by Table, reason core.Reason, d core.Decision) *Refusal {
	answer := by.to(reason)
	return &Refusal{Status: answer.Status, Reason: reason, Decision: d, answer: answer}
}

// described returns the answer to the refusal's reason.
func (f *Refusal) described() *answer {
	if f.answer != nil && f.answer.Reason == f.Reason {
		return f.answer
	}
	return Own.to(f.Reason)
}

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

// Defer makes of a refusal the answer to a request that runs later.
func (f *Refusal) Defer(by Table, d *Deferral) {
	f.answer = by.to(core.ReasonDeferred)
	f.Status, f.Reason, f.deferral = f.answer.Status, core.ReasonDeferred, d
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

// RetryAfter returns the value of the Retry-After field (RFC 9110, section 10.2.3): whole seconds, rounded up
// unless the excess is less than a millisecond. Zero means that waiting does not help, and that there is no
// such field.
func (f *Refusal) RetryAfter() time.Duration {
	if f.deferral != nil {
		return time.Duration(max(1, wholeSeconds(f.deferral.RetryAfter))) * time.Second
	}
	seconds := wholeSeconds(f.Decision.RetryAfter)
	if f.Reason == ReasonUnavailable {
		seconds = 1
	}
	if seconds == 0 {
		return 0
	}
	// A client that retries while a RateLimit field says that nothing is left would be refused again.
	for around := f.fields.around(); around != nil; around = around.around() {
		seconds = max(seconds, around.spent)
	}
	return time.Duration(seconds) * time.Second
}

// wholeSeconds returns a duration in seconds, rounded up.
func wholeSeconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	// Sliding windows round times up by less than a millisecond. That must not turn a minute into 61 seconds.
	// A response is on its way for longer than that.
	seconds := (d-time.Millisecond-1)/time.Second + 1
	return min(int64(seconds), 1<<31-1) // some clients cannot read more
}
