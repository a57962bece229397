package nethttpmw

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// Reasons for answers that no guard has decided.
const (
	// ReasonNoKey: a key function found nothing.
	ReasonNoKey core.Reason = "no_key"
	// ReasonMalformed: a key function found something that can not be used.
	ReasonMalformed core.Reason = "malformed"
	// ReasonInvalid: the attempt makes no sense, such as a negative quantity.
	ReasonInvalid core.Reason = "invalid"
	// ReasonDenied: the rule's Deny has the request.
	ReasonDenied core.Reason = "denied"
	// ReasonUnavailable: Redis could not be asked, and the rule refuses then.
	ReasonUnavailable core.Reason = "unavailable"
)

// answer is what a client is told for a reason: a status and a fixed text. Causes are never in it.
type answer struct {
	status int
	detail string
}

// answers is the one table of what is answered.
var answers = map[core.Reason]answer{
	core.ReasonLimited:     {http.StatusTooManyRequests, "Too many requests. Try again later."},
	core.ReasonOverLimit:   {http.StatusTooManyRequests, "This request asks for more than the limit allows at all."},
	core.ReasonBanned:      {http.StatusTooManyRequests, "Refused too often. Stop for a while."},
	core.ReasonQuota:       {http.StatusTooManyRequests, "All that is allowed has been used."},
	core.ReasonEarly:       {http.StatusTooManyRequests, "The sale has not begun yet."},
	core.ReasonDuplicate:   {http.StatusConflict, "This has been done before, as often as is allowed."},
	core.ReasonNotOpen:     {http.StatusConflict, "This is not open."},
	core.ReasonClosed:      {http.StatusConflict, "This is closed."},
	core.ReasonSoldOut:     {http.StatusConflict, "Sold out."},
	core.ReasonInProgress:  {http.StatusConflict, "The same request is being worked on. Ask again in a moment."},
	core.ReasonEmpty:       {http.StatusConflict, "All shares have been taken."},
	core.ReasonGone:        {http.StatusConflict, "The reservation is over."},
	core.ReasonDone:        {http.StatusConflict, "This has been done before."},
	core.ReasonConflict:    {http.StatusUnprocessableEntity, "This operation ID belongs to a different request."},
	core.ReasonNotReady:    {http.StatusServiceUnavailable, "This is not ready."},
	core.ReasonUnconfirmed: {http.StatusServiceUnavailable, "This has not been confirmed. Try again, as the same operation."},
	ReasonDenied:           {http.StatusForbidden, "This is not open to you."},
	core.ReasonDayRolled:   {http.StatusServiceUnavailable, "A new period is just beginning. Try again."},
	ReasonUnavailable:      {http.StatusServiceUnavailable, "This can not be decided right now. Try again later."},
	ReasonNoKey:            {http.StatusBadRequest, "The request lacks something that this needs to know."},
	ReasonMalformed:        {http.StatusBadRequest, "Something in the request that this needs to know is malformed."},
	ReasonInvalid:          {http.StatusBadRequest, "The request asks for something that does not exist."},
}

// unknownAnswer is for the reasons of an application's own guards.
var unknownAnswer = answer{http.StatusForbidden, "This request was refused."}

// Reasons returns the reasons that have an answer of their own, in alphabetical order.
func Reasons() []core.Reason { return slices.Sorted(maps.Keys(answers)) }

// Status returns the status that a refusal for this reason is answered with.
func Status(reason core.Reason) int { return answerTo(reason).status }

func answerTo(reason core.Reason) answer {
	if a, ok := answers[reason]; ok {
		return a
	}
	return unknownAnswer
}

// titles are what a problem of a type is called. A reason that has none here is called as its status is.
var titles = map[core.Reason]string{
	core.ReasonLimited:     "Quota Exceeded", // as draft-ietf-httpapi-ratelimit-headers calls it
	core.ReasonOverLimit:   "Quota Exceeded",
	core.ReasonQuota:       "Quota Exceeded",
	core.ReasonBanned:      "Abnormal Usage Detected", // likewise
	core.ReasonEarly:       "Not Begun",
	core.ReasonDuplicate:   "Done Before",
	core.ReasonNotOpen:     "Not Open",
	core.ReasonClosed:      "Closed",
	core.ReasonSoldOut:     "Sold Out",
	core.ReasonInProgress:  "In Progress",
	core.ReasonEmpty:       "All Taken",
	core.ReasonGone:        "Reservation Over",
	core.ReasonDone:        "Already Done",
	core.ReasonConflict:    "Operation ID In Use",
	core.ReasonNotReady:    "Not Ready",
	core.ReasonUnconfirmed: "Not Confirmed",
	core.ReasonDayRolled:   "New Period",
	ReasonDenied:           "Not Open To You",
	ReasonUnavailable:      "Temporarily Closed",
	ReasonNoKey:            "Something Is Missing",
	ReasonMalformed:        "Something Is Malformed",
	ReasonInvalid:          "Not A Valid Request",
}

// Problem types, as of RFC 9457. Those of quotas are asked to be registered by draft-ietf-httpapi-ratelimit-headers, revision 11,
// section 10.2; ours are explained where they lead to.
const (
	quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	abnormalUsage = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected"
	noType        = "about:blank" // the status says it all
	ourTypes      = "https://github.com/gatehouse-go/gatehouse#"
)

func problemType(reason core.Reason) string {
	switch reason {
	case core.ReasonLimited, core.ReasonOverLimit, core.ReasonQuota:
		return quotaExceeded
	case core.ReasonBanned:
		return abnormalUsage
	default:
		if _, ok := answers[reason]; !ok {
			return noType // an application's own reason
		}
		return ourTypes + string(reason)
	}
}

// Refusal is the answer to a request that a rule refused.
type Refusal struct {
	// Status is the HTTP status.
	Status int
	// Reason is why; it is in the body as well.
	Reason core.Reason
	// Decision is the guard's, as far as there is one; its Guard is always set.
	Decision core.Decision

	rule     *Rule // the one that refused; none in a Refusal that a pipeline has not made
	fields   fields
	outer    *link
	standard bool // the rule's Answer has been asked
}

func refuse(reason core.Reason, d core.Decision) *Refusal {
	f := &Refusal{Status: Status(reason), Reason: reason, Decision: d}
	if o, ok := retold(d); ok {
		f.Status = o.Status
	}
	return f
}

// by notes which rule has refused the request, and what is to be said of figures.
func (f *Refusal) by(rule *Rule, r *keyfuncs.Request, p *Passage) {
	f.rule, f.outer = rule, p.outer
	refusing := &entry{rule: rule, decision: f.Decision}
	if f.Decision.Reason != f.Reason {
		refusing.decision = core.Decision{} // the guard has not decided
	}
	f.fields = figures(r, p.entries, refusing)
}

// Answer answers the request: by the rule's Answer, where there is one, else by Reply. Where the operation has been done before, and
// its answer was kept, that is written again, and the rule's Answer is not asked. It is for adapters; an Answer that calls it gets
// Reply.
func (f *Refusal) Answer(w http.ResponseWriter, r *http.Request) {
	if _, again := retold(f.Decision); again || f.rule == nil || f.rule.Answer == nil || f.standard {
		f.Reply(w, r)
		return
	}
	f.setHeaders(w.Header())
	asked := *f
	asked.standard = true
	answered := false
	f.rule.Answer(watch(w, func(int) { answered = true }), r, &asked)
	if !answered {
		f.Reply(w, r)
	}
}

// Reply writes the standard answer: the status, the RateLimit fields, Retry-After, and a body that says why, in the form that the
// request's Accept header asks for (RFC 9110, section 12.5.1): application/problem+json (RFC 9457) unless it prefers text/html or
// text/plain. The answer to a HEAD request has the header only. No cache may keep it: the next answer may differ. Where the operation
// has been done before, and its answer was kept, that is written again.
func (f *Refusal) Reply(w http.ResponseWriter, r *http.Request) {
	if o, ok := retold(f.Decision); ok {
		f.retell(w, r, o)
		return
	}
	text := f.text(r)
	form := negotiate(r.Header["Accept"])
	body := f.body(form, text)
	header := w.Header()
	f.setHeaders(header)
	header.Set("Content-Type", mediaTypes[form])
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	if text.Lang != "" {
		header.Set("Content-Language", text.Lang)
	}
	if form == formPage {
		header.Add("Content-Security-Policy", pagePolicy) // one more policy can only forbid more
	}
	varyByAccept(header)
	w.WriteHeader(f.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may have gone; the request is refused either way
	}
}

// setHeaders sets what every refusal has in its header, whoever answers.
func (f *Refusal) setHeaders(header http.Header) {
	f.outer.setHeaders(header)
	f.fields.set(header)
	if wait := f.RetryAfter(); wait > 0 {
		header.Set("Retry-After", strconv.FormatInt(int64(wait/time.Second), 10))
	}
	header.Set("Cache-Control", "no-store")
}

// RetryAfter returns what the field Retry-After says (RFC 9110, section 10.2.3): whole seconds, rounded up (but for the last
// millisecond), 0 when waiting is no help.
func (f *Refusal) RetryAfter() time.Duration {
	seconds := wholeSeconds(f.Decision.RetryAfter)
	if f.Reason == ReasonUnavailable {
		seconds = 1
	}
	if seconds == 0 {
		return 0
	}
	// Who comes back while a RateLimit field says that nothing is left would be refused again.
	for l := f.outer; l != nil; l = l.outer {
		seconds = max(seconds, l.passage.fields.spent)
	}
	return time.Duration(seconds) * time.Second
}

// wholeSeconds rounds up.
func wholeSeconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	// Sliding windows round moments up by less than a millisecond, and that must not make a minute 61 seconds. It is less than an
	// answer is under way.
	seconds := (d-time.Millisecond-1)/time.Second + 1
	return min(int64(seconds), 1<<31-1) // more than some clients can read
}
