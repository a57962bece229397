package answers

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
)

// Reasons of refusals that rules decide, not a guard.
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
	// claim. Status 403.
	ReasonPreflight core.Reason = "preflight"
	// ReasonUnavailable: the guard could not decide because Redis is unavailable, and the rule's outage policy
	// does not let the request pass. Or a key function of the application failed. Status 503.
	ReasonUnavailable core.Reason = "unavailable"
)

// ruleAnswers are the answers to refusals by a rule itself.
var ruleAnswers = []kit.Answer{
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

// Table has the answers to the refusals of one guard. It does not change once requests are served.
type Table map[core.Reason]*answer

// TableOf returns the table of a guard, or of anything else that describes itself. Nil gets the answers of
// rules only. It panics if the guard describes one of these.
func TableOf(guard any) Table {
	t := Table{}
	for _, a := range ruleAnswers {
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
func (t Table) to(reason core.Reason) *answer {
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

// Own has the answers of rules only. It is for refusals of no guard.
var Own = TableOf(nil)

// Add completes the table: these reasons get their standard answers, unless they have one.
func (t Table) Add(reasons ...core.Reason) {
	for _, reason := range reasons {
		t[reason] = t.to(reason)
	}
}

// Answer returns the answer to a reason.
func (t Table) Answer(reason core.Reason) kit.Answer { return t.to(reason).Answer }

// Sorted returns the answers of the table, and those of another one to reasons that it does not have, by
// reason.
func (t Table) Sorted(other Table) []kit.Answer {
	sorted := make([]kit.Answer, 0, len(t)+len(other))
	for _, a := range t {
		sorted = append(sorted, a.Answer)
	}
	for reason, a := range other {
		if _, ok := t[reason]; !ok {
			sorted = append(sorted, a.Answer)
		}
	}
	slices.SortFunc(sorted, func(a, b kit.Answer) int { return cmp.Compare(a.Reason, b.Reason) })
	return sorted
}

// beginProblem returns a problem as far as it does not depend on the request: without its last brace.
func beginProblem(a kit.Answer, status int, text Text) []byte {
	body, err := json.Marshal(problem{Type: a.Type, Title: text.Title, Status: status, Detail: text.Detail,
		Reason: a.Reason})
	if err != nil {
		return []byte(`{`) // strings and numbers cannot fail to marshal
	}
	return body[:len(body)-1]
}

// problem is the body of a refusal (RFC 9457), as far as it does not depend on the request. The names of
// policies and the guard's details follow it: see kit.DetailsOf.
type problem struct {
	Type   string      `json:"type"`
	Title  string      `json:"title"`
	Status int         `json:"status"`
	Detail string      `json:"detail"`
	Reason core.Reason `json:"reason"`
}
