package answers

import (
	"log/slog"
	"net/http"
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

// Defer makes of a refusal the answer to a request that runs later.
func (f *Refusal) Defer(by Table, d *Deferral) {
	f.answer = by.to(core.ReasonDeferred)
	f.Status, f.Reason, f.deferral = f.answer.Status, core.ReasonDeferred, d
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

// constant is what the figures of a guard with one limit have in all answers.
type constant struct {
	max    int64
	window time.Duration
	name   string // of the policy, as a String (RFC 9651)
	policy string // the item of RateLimit-Policy
}

// Replay makes the answer to an operation that is done and has no stored answer.
func Replay(by Table, d core.Decision) *Refusal {
	f := Refuse(by, core.ReasonReplayed, d)
	f.replayed = true
	if f.Status/100 != 2 {
		f.Status = http.StatusOK // the guard has described the texts only
	}
	return f
}
