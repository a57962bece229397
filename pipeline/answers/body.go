package answers

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
)

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

// fact is the body that names the operation that is done. The guard's details follow it, as in a problem.
type fact struct {
	Title    string      `json:"title"`
	Status   int         `json:"status"`
	Detail   string      `json:"detail"`
	Reason   core.Reason `json:"reason"`
	Resource string      `json:"resource,omitempty"`
	Item     string      `json:"item,omitempty"`
	Cost     int64       `json:"cost,omitempty"`
}

func (f *Refusal) fact(text Text) []byte {
	a := f.Decision.Attempt
	body, err := json.Marshal(fact{text.Title, f.Status, text.Detail, f.Reason, a.Resource, a.Item, a.Cost})
	if err != nil {
		body = []byte(`{}`) // strings and numbers cannot fail to marshal
	}
	return append(appendDetails(body, kit.DetailsOf(f.Decision)), '\n') // the newline is for terminals
}
