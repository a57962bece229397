package nethttpmw

import (
	"cmp"
	"fmt"
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

// pipelineAnswers are the answers that no guard has decided.
var pipelineAnswers = []core.Answer{
	{
		Reason: ReasonNoKey, Status: http.StatusBadRequest, Title: "Something Is Missing",
		Detail: "The request lacks something that this needs to know.", Type: ourTypes + "no_key",
	},
	{
		Reason: ReasonMalformed, Status: http.StatusBadRequest, Title: "Something Is Malformed",
		Detail: "Something in the request that this needs to know is malformed.", Type: ourTypes + "malformed",
	},
	{
		Reason: ReasonInvalid, Status: http.StatusBadRequest, Title: "Not A Valid Request",
		Detail: "The request asks for something that does not exist.", Type: ourTypes + "invalid",
	},
	{
		Reason: ReasonDenied, Status: http.StatusForbidden, Title: "Not Open To You",
		Detail: "This is not open to you.", Type: ourTypes + "denied",
	},
	{
		Reason: ReasonUnavailable, Status: http.StatusServiceUnavailable, Title: "Temporarily Closed",
		Detail: "This can not be decided right now. Try again later.", Type: ourTypes + "unavailable",
	},
}

const (
	noType   = "about:blank" // the status says it all
	ourTypes = "https://github.com/gatehouse-go/gatehouse#"
)

// answerTable has the answers to the refusals of one guard.
type answerTable map[core.Reason]core.Answer

// answersOf returns the table of a guard, or of anything else that may describe itself: nil is nobody.
func answersOf(guard any) answerTable {
	t := answerTable{}
	for _, a := range pipelineAnswers {
		t[a.Reason] = a
	}
	for _, a := range core.DescriptionOf(guard).Answers {
		if _, ours := t[a.Reason]; ours {
			panic(fmt.Sprintf("gatehouse: a guard describes the reason %q, which is the pipeline's: give it another name", a.Reason))
		}
		t[a.Reason] = complete(a)
	}
	return t
}

// to returns the answer to a reason: the guard's or the pipeline's, else the standard one, else one that says
// little.
func (t answerTable) to(reason core.Reason) core.Answer {
	if a, ok := t[reason]; ok {
		return a
	}
	a, ok := core.StandardAnswer(reason)
	if !ok {
		a.Reason = reason
	}
	return complete(a)
}

// complete fills in what an answer leaves out, but for its title: see Refusal.text.
func complete(a core.Answer) core.Answer {
	a.Status = cmp.Or(a.Status, http.StatusForbidden)
	a.Detail = cmp.Or(a.Detail, "This request was refused.")
	a.Type = cmp.Or(a.Type, noType)
	return a
}

// undescribed is the table for refusals that no pipeline has made.
var undescribed = answersOf(nil)

// Answers returns the answers that the rule's refusals are given, in alphabetical order of their reasons:
// those of the pipeline itself, of the guard, and of Bans. A guard that does not describe itself may refuse
// for further reasons: those that have a core.StandardAnswer get it, and others 403. It is for documents and
// tests.
func (r Rule) Answers() []core.Answer {
	all := answersOf(r.Guard)
	if r.Bans != nil {
		for reason, a := range answersOf(r.Bans) {
			if _, ok := all[reason]; !ok {
				all[reason] = a
			}
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b core.Answer) int { return cmp.Compare(a.Reason, b.Reason) })
}

// Refusal is the answer to a request that a rule refused.
type Refusal struct {
	// Status is the HTTP status.
	Status int
	// Reason is why; it is in the body as well.
	Reason core.Reason
	// Decision is the guard's, as far as there is one; its Guard is always set.
	Decision core.Decision

	rule     *mounted    // the one that refused; none in a Refusal that a pipeline has not made
	answer   core.Answer // none in such a Refusal
	fields   fields
	outer    *link
	standard bool // the rule's Answer has been asked
}

// refuse makes a refusal by the table of who refuses.
func refuse(by answerTable, reason core.Reason, d core.Decision) *Refusal {
	answer := by.to(reason)
	f := &Refusal{Status: answer.Status, Reason: reason, Decision: d, answer: answer}
	if o, ok := retold(d); ok {
		f.Status = o.Status
	}
	return f
}

// described returns what the refusal is answered with.
func (f *Refusal) described() core.Answer {
	if f.answer.Status != 0 && f.answer.Reason == f.Reason {
		return f.answer
	}
	return undescribed.to(f.Reason)
}

// by notes which rule has refused the request, and what is to be said of figures.
func (f *Refusal) by(rule *mounted, r *keyfuncs.Request, p *Passage) {
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
	f.rule.Answer(watched(w, &beginning{tell: func(int) { answered = true }}), r, &asked)
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
