package answers

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
)

// Text is the human-readable part of a refusal.
type Text struct {
	// Title is a short summary, Detail a sentence that explains it. Empty: the standard English text.
	Title, Detail string
	// Lang is the language of the texts, such as "pt-BR" (RFC 5646). It is used in the Content-Language field
	// and in pages. Empty: no such field, and "en" in pages.
	Lang string
	// Wait and Ready are for pages that say when to come back. Wait precedes the time. Ready is shown when
	// that time has come. Empty: "You can come back at" and "You can try again now." in an English page. A
	// page of another language then has the time without words.
	Wait, Ready string
}

// text returns the title and the detail of the response.
func (f *Refusal) text(r *http.Request, form form) (text Text) {
	if f.source != nil && f.source.Texts != nil {
		text = f.source.Texts(r, f)
	}
	answer := f.described()
	if f.Missing != "" {
		text.Detail = cmp.Or(text.Detail, f.lacks(form))
	}
	if form == formPage {
		if text == (Text{}) && len(answer.Pages) > 0 {
			text = textIn(answer.Pages, r.Header["Accept-Language"])
		}
		text.Title = cmp.Or(text.Title, answer.PageTitle)
		text.Detail = cmp.Or(text.Detail, answer.PageDetail)
	}
	text.Title = cmp.Or(text.Title, answer.Title, http.StatusText(f.Status))
	text.Detail = cmp.Or(text.Detail, answer.Detail)
	return text
}

// lacks names the field that is missing.
func (f *Refusal) lacks(form form) string {
	if form == formPage {
		return "What you have sent lacks “" + f.Missing + "”. Go back and fill it in."
	}
	return `The request lacks "` + f.Missing + `".`
}

// body returns the body in the given form.
func (f *Refusal) body(form form, text Text, r *http.Request) []byte {
	switch form {
	case formPlain:
		return []byte(text.Title + "\n\n" + text.Detail + "\n")
	case formPage:
		return f.page(text, r)
	case formProblem:
	}
	switch {
	case f.replayed:
		return f.fact(text)
	case f.deferral != nil:
		return f.promise(text)
	}
	return f.problem(text)
}

func (f *Refusal) problem(text Text) []byte {
	answer := f.described()
	begun, standard := answer.problem, standardText(answer.Answer)
	standard.Lang, standard.Wait, standard.Ready = text.Lang, text.Wait, text.Ready // not in the body
	if begun == nil || f.Status != answer.Status || text != standard {
		begun = beginProblem(answer.Answer, f.Status, text)
	}
	body := append(make([]byte, 0, len(begun)+64), begun...) // a copy: others may be read meanwhile
	body = append(f.appendPolicies(body), '}')
	return append(appendDetails(body, kit.DetailsOf(f.Decision)), '\n') // the newline is for terminals
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

// taken are the member names that a guard's details cannot use.
var taken = []string{"type", "title", "status", "detail", "instance", "reason", "violated-policies"}

// appendDetails adds members to a JSON object. It leaves out details that JSON cannot encode, and those whose
// names are taken.
func appendDetails(object []byte, details []kit.Detail) []byte {
	for i, d := range details {
		repeated := slices.ContainsFunc(details[:i], func(before kit.Detail) bool { return before.Name == d.Name })
		if repeated || slices.Contains(taken, d.Name) {
			continue
		}
		member, err := json.Marshal(map[string]any{d.Name: d.Value})
		if err == nil {
			object = append(object[:len(object)-1], ',')
			object = append(object, member[1:]...)
		}
	}
	return object
}

// appendPolicies appends the names of the policies that the request would have violated, as they are in the
// RateLimit fields: the one of the limit that refused it.
func (f *Refusal) appendPolicies(body []byte) []byte {
	if uri := f.described().Type; uri != kit.TypeQuotaExceeded && uri != kit.TypeAbnormalUsage {
		return body
	}
	if f.source != nil && f.source.Headers.Hide || f.Decision.Guard == "" {
		return body
	}
	body = append(body, `,"violated-policies":["`...)
	// The appended text needs no escapes in JSON.
	limits, binding := f.Decision.Policies(), core.Policy{Window: f.Decision.Window}
	for _, l := range limits {
		if l.Binding {
			binding = l
		}
	}
	body = appendPolicyName(body, f.Decision.Guard, len(limits), binding)
	return append(body, `"]`...)
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

// promise is the body that says that a request runs later, and where its answer will be.
type promise struct {
	Title    string      `json:"title"`
	Status   int         `json:"status"`
	Detail   string      `json:"detail"`
	Reason   core.Reason `json:"reason"`
	Location string      `json:"location"`
}

func (f *Refusal) promise(text Text) []byte {
	body, err := json.Marshal(promise{text.Title, f.Status, text.Detail, f.Reason, f.deferral.Location})
	if err != nil {
		body = []byte(`{}`) // strings and numbers cannot fail to marshal
	}
	return append(body, '\n') // the newline is for terminals
}
