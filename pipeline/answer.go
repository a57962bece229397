package pipeline

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// Reasons of refusals that the pipeline decides, not a guard.
const (
	// ReasonNoKey: a key function found nothing. Status 400.
	ReasonNoKey core.Reason = "no_key"
	// ReasonMalformed: a key function found a malformed value. Status 400.
	ReasonMalformed core.Reason = "malformed"
	// ReasonTooLarge: the body is larger than a key function reads. Status 413.
	ReasonTooLarge core.Reason = "too_large"
	// ReasonInvalid: the attempt is invalid, such as one with a negative quantity. Status 400.
	ReasonInvalid core.Reason = "invalid"
	// ReasonDenied: the rule's Deny list contains the request. Status 403.
	ReasonDenied core.Reason = "denied"
	// ReasonPreflight: a CORS preflight, which claims nothing, must not run the handler without the rule's
	// claim. Status 403. See Rule.CountPreflights.
	ReasonPreflight core.Reason = "preflight"
	// ReasonUnavailable: the guard could not decide because Redis is unavailable, and the rule's outage policy
	// does not let the request pass; or a key function of the application failed. Status 503.
	ReasonUnavailable core.Reason = "unavailable"
)

// pipelineAnswers are the answers to refusals by the pipeline.
var pipelineAnswers = []kit.Answer{
	{
		Reason: ReasonNoKey, Status: http.StatusBadRequest, Title: "Missing Information",
		Detail: "The request lacks required information.", Type: ourTypes + "no_key",
		PageTitle: "Something is missing",
		PageDetail: "What you have sent lacks something that is needed. Go back and check " +
			"it; you may have to log in.",
	},
	{
		Reason: ReasonMalformed, Status: http.StatusBadRequest, Title: "Malformed Request",
		Detail: "The request contains a malformed value.", Type: ourTypes + "malformed",
		PageTitle:  "Something is wrong",
		PageDetail: "A value that you have sent cannot be read. Go back and check it.",
	},
	{
		Reason: ReasonTooLarge, Status: http.StatusRequestEntityTooLarge, Title: "Request Too Large",
		Detail: "The request's body is too large.", Type: ourTypes + "too_large",
		PageTitle:  "Too large",
		PageDetail: "What you have sent is too large.",
	},
	{
		Reason: ReasonInvalid, Status: http.StatusBadRequest, Title: "Invalid Request",
		Detail: "The request asks for something that is not possible.", Type: ourTypes + "invalid",
		PageTitle:  "Not possible",
		PageDetail: "What you have asked for is not possible. Go back and check it.",
	},
	{
		Reason: ReasonDenied, Status: http.StatusForbidden, Title: "Access Denied",
		Detail: "You do not have access.", Type: ourTypes + "denied",
		PageTitle: "No access",
		PageDetail: "You have no access here. If you think that this is a mistake, ask the " +
			"people who run this site.",
	},
	{
		Reason: ReasonPreflight, Status: http.StatusForbidden, Title: "No Preflight Here",
		Detail: "This route answers no CORS preflights.", Type: ourTypes + "preflight",
		PageTitle:  "Not for pages of other sites",
		PageDetail: "Pages of other sites may not ask this of this site.",
	},
	{
		Reason: ReasonUnavailable, Status: http.StatusServiceUnavailable, Title: "Temporarily Unavailable",
		Detail: "The request cannot be processed now. Try again later.", Type: ourTypes + "unavailable",
		PageTitle:  "Not available at the moment",
		PageDetail: "This site cannot work on your request at the moment. It is not your fault.",
	},
}

const (
	noType   = "about:blank" // the status is the whole meaning (RFC 9457, section 4.2.1)
	ourTypes = "https://github.com/gatehouse-go/gatehouse/blob/main/docs/guides/answers.md#"
)

// answer is how refusals for one reason are answered.
type answer struct {
	kit.Answer
	problem []byte // how a problem with the standard text begins: see Refusal.problem; nil: not made yet
}

// answerTable has the answers to the refusals of one guard.
type answerTable map[core.Reason]*answer

// answersOf returns the table of a guard, or of anything else that describes itself. Nil gets the pipeline's
// answers only.
func answersOf(guard any) answerTable {
	t := answerTable{}
	for _, a := range pipelineAnswers {
		t[a.Reason] = prepareAnswer(a)
	}
	for _, a := range kit.DescriptionOf(guard).Answers {
		if _, ours := t[a.Reason]; ours {
			panic(fmt.Sprintf("gatehouse: a guard describes the reason %q, which belongs to the pipeline: rename it",
				a.Reason))
		}
		t[a.Reason] = prepareAnswer(a)
	}
	return t
}

// prepareAnswer completes an answer, and makes what all problems with its standard text have in common.
func prepareAnswer(a kit.Answer) *answer {
	a = complete(a)
	return &answer{a, beginProblem(a, a.Status, standardText(a))}
}

// standardText returns the text of an answer where Rule.Texts and replays change nothing.
func standardText(a kit.Answer) Text {
	return Text{Title: cmp.Or(a.Title, http.StatusText(a.Status)), Detail: a.Detail}
}

// to returns the answer to a reason: from the table, else the standard answer, else a generic one.
func (t answerTable) to(reason core.Reason) *answer {
	if a, ok := t[reason]; ok {
		return a
	}
	a, ok := kit.StandardAnswer(reason)
	if !ok {
		a.Reason = reason
	}
	return &answer{Answer: complete(a)}
}

// complete fills in the empty fields of an answer, except its title: see Refusal.text.
func complete(a kit.Answer) kit.Answer {
	a.Status = cmp.Or(a.Status, http.StatusForbidden)
	a.Detail = cmp.Or(a.Detail, "This request was refused.")
	a.Type = cmp.Or(a.Type, noType)
	return a
}

// undescribed is the table for a Refusal that no pipeline has made.
var undescribed = answersOf(nil)

// Answers returns the answers to the rule's refusals, sorted by reason: those of the pipeline, of the guard,
// and of Bans. A guard that does not describe itself may refuse for further reasons. These get their
// [kit.StandardAnswer] if there is one, and status 403 otherwise. Answers is for documents and tests.
func (r Rule) Answers() []kit.Answer {
	all := answersOf(r.Guard)
	if traits := r.Guard.Traits(); !traits.KeepsOutcome && !traits.KeepsOnFailure && !r.RunReplays {
		all[core.ReasonReplayed] = all.to(core.ReasonReplayed)
		if traits.Confirms {
			all[core.ReasonInProgress] = all.to(core.ReasonInProgress)
		}
	}
	if r.Defer != nil {
		all[core.ReasonDeferred] = all.to(core.ReasonDeferred)
		all[core.ReasonConflict] = all.to(core.ReasonConflict)
	}
	if r.Bans != nil {
		for reason, a := range answersOf(r.Bans) {
			if _, ok := all[reason]; !ok {
				all[reason] = a
			}
		}
	}
	answers := make([]kit.Answer, 0, len(all))
	for _, a := range all {
		answers = append(answers, a.Answer)
	}
	slices.SortFunc(answers, func(a, b kit.Answer) int { return cmp.Compare(a.Reason, b.Reason) })
	return answers
}

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

	rule     *mounted // the rule that refused; nil if no pipeline made the Refusal
	answer   *answer  // nil in such a Refusal
	fields   fields
	outer    *Passage
	standard bool      // the rule's Answer was called
	replayed bool      // the operation is done, so this is no refusal
	banned   bool      // the rule's Bans have refused
	stranger bool      // has no token and does not navigate, as a search engine: see kit.Answer.PageStatus
	deferral *Deferral // the request runs later; nil: it does not
}

// refuse makes a refusal with the answer of the table.
func refuse(by answerTable, reason core.Reason, d core.Decision) *Refusal {
	answer := by.to(reason)
	return &Refusal{Status: answer.Status, Reason: reason, Decision: d, answer: answer}
}

// described returns the answer to the refusal's reason.
func (f *Refusal) described() *answer {
	if f.answer != nil && f.answer.Reason == f.Reason {
		return f.answer
	}
	return undescribed.to(f.Reason)
}

// by records the rule that refused the request, and the figures for the header.
func (f *Refusal) by(rule *mounted, r *keyfuncs.Request, p *Passage) {
	f.rule, f.outer = rule, p.outer
	if o, ok := replayOf(f.Decision, r.Request); ok {
		f.Status = o.Status
	} else if status := f.described().PageStatus; status != 0 {
		f.stranger = f.Decision.Attempt.Token == "" && r.Header.Get("Sec-Fetch-Mode") != "navigate"
		switch {
		case !isPageView(r.Request):
		case f.stranger:
			f.Status = http.StatusServiceUnavailable
		default:
			f.Status = status
		}
	}
	refusing := &entry{rule: rule, decision: f.Decision}
	if f.Decision.Reason != f.Reason {
		refusing.decision = core.Decision{} // the guard has not decided
	}
	f.fields = figures(r, p.entries, refusing)
}

// Answer writes the response: by Rule.Answer if the rule has one, else by [Refusal.Reply]. A stored answer of
// the same operation is replayed, and Rule.Answer is not called. Answer is for adapters. When Rule.Answer
// calls it, it writes what Reply writes.
func (f *Refusal) Answer(w http.ResponseWriter, r *http.Request) {
	_, stored := replayOf(f.Decision, r)
	if stored || f.replayed || f.rule == nil || f.rule.Answer == nil || f.standard {
		f.Reply(w, r)
		return
	}
	f.setHeaders(w.Header(), new(values))
	pointToResult(w.Header(), f.Decision)
	asked := *f
	asked.standard = true
	answered := false
	f.rule.Answer(watched(w, &beginning{tell: func(int) { answered = true }}), r, &asked)
	if !answered {
		f.Reply(w, r)
	}
}

// Reply writes the standard response: the status, the RateLimit fields, Retry-After, and a body with the
// reason. The Accept header of the request selects the form of the body (RFC 9110, section 12.5.1):
// application/problem+json (RFC 9457), unless the client prefers text/html or text/plain. A page says in
// words for people what happened and, where there is a Retry-After, when to come back. A HEAD request gets
// the header only. Cache-Control: no-store forbids caching, since the next response may differ. A stored
// answer of the same operation is replayed instead, if it is whole and the client accepts its coding; if
// not, Location says where its result is, as far as the handler has said so. A claim that is done without
// a stored answer is answered with status 200, and with application/json in place of a problem.
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
		expose(header)
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
	if f.outer != nil {
		f.outer.setHeaders(header)
	}
	f.fields.set(header)
	if wait := f.RetryAfter(); wait > 0 {
		v.set(header, "Retry-After", strconv.FormatInt(int64(wait/time.Second), 10))
	}
	v.set(header, "Cache-Control", "no-store")
	if f.described().PageStatus != 0 && !f.stranger {
		header.Set("X-Robots-Tag", "noindex")
	}
	expose(header)
	if f.deferral != nil {
		header.Set("Location", f.deferral.Location)
		exposeField(header, "Location")
	}
}

// values holds values of header fields, which share allocations.
type values []string

// set is http.Header.Set for a name in its canonical form. Who appends to the field's values gets a copy.
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
	for l := f.outer; l != nil; l = l.outer {
		seconds = max(seconds, l.fields.spent)
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
