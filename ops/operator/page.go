package operator

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"path"
	"strconv"

	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// view is the content of one response.
type view struct {
	// List is the list of guards, with what is known of them.
	List   *list
	Asked  *Action
	Result any
	Failed *failure

	// The rest is for pages only.

	Sections []section
	// Form asks for a change, in place of its result.
	Form *form
	// Says is the result as a sentence, Value are its figures, Next what can be asked next.
	Says  string
	Value value
	Next  []step
	// Below reports whether the page belongs to a guard. Then ../ leads to the list.
	Below bool
}

// section is a part of the page of the list: a title, and Content rendered by the template named by the ID.
type section struct {
	ID, Title, Note string
	Content         any
}

// form asks for a change, with the given fields and inputs for missing ones.
type form struct {
	Asked   *Action
	Missing []kit.Field
	// Lasting reports whether no other action takes the change back.
	Lasting bool
}

// failure is the body of an error response (RFC 9457).
type failure struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

// The parts of the page. The style sheet and the script are allowed by their hashes, so html/template must
// not change them.
var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	pageStyle string
	//go:embed page.js
	pageScript string
)

// policy is the Content-Security-Policy of all responses.
var policy = "default-src 'none'; style-src " + sourceHash(pageStyle) +
	"; script-src " + sourceHash(pageScript) + "; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'"

func sourceHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// page is the template of all pages. It is filled by init, as it calls itself.
var page *template.Template

func init() {
	page = template.Must(template.New("page").Funcs(template.FuncMap{
		"method": methodOf, "hint": hintOf, "field": inputOf, "show": shownText, "given": givenOf,
		"first": firstSteps, "rest": restOfSteps,
		"number": func(n any) string { return groupedText(fmt.Sprint(n)) },
		"style":  func() template.HTML { return template.HTML("<style>" + pageStyle + "</style>") },
		"script": func() template.HTML {
			return template.HTML(`<script type="module">` + pageScript + "</script>")
		},
		"part": func(name string, content any) (template.HTML, error) {
			var text bytes.Buffer
			err := page.ExecuteTemplate(&text, name, content)
			return template.HTML(text.String()), err
		},
	}).Parse(pageText))
}

// input is a field of a form.
type input struct {
	Field   kit.Field
	ID      string
	Options []pair
}

// Name and Required are those of the field.
func (in input) Name() string   { return in.Field.Name }
func (in input) Required() bool { return in.Field.Required }

func inputOf(f kit.Field, form string, i int) input {
	in := input{Field: f, ID: fmt.Sprintf("field-%s-%d", form, i)}
	choices := f.Choices
	if f.Kind == kit.FieldFlag {
		choices = []string{"true", "false"}
	} else if len(choices) > 0 {
		in.Options = []pair{{"choose", ""}} // nobody asks about the first one by mistake
	}
	for _, choice := range choices {
		name := choice
		if choice == "*" {
			name = "* (all others)"
		}
		in.Options = append(in.Options, pair{name, choice})
	}
	return in
}

// hintOf returns what the page says beside a field.
func hintOf(f kit.Field) string {
	if f.Hint != "" {
		return f.Hint
	}
	switch f.Kind {
	case kit.FieldNumber:
		return "a whole number, such as 10"
	case kit.FieldDuration:
		return "such as 90s, 15m or 24h"
	case kit.FieldPercent:
		return "percent, such as 12.5"
	case kit.FieldFlag:
		return ""
	default: // text
	}
	return map[string]string{ // as kit.Input.Attempt reads them
		"actor":    "as the rule's Who has it, such as 203.0.113.7 or ann",
		"resource": "as the rule's What has it; empty if the rule has none",
		"item":     "as the rule's Which has it",
		"id":       "as the client has sent it, such as order-1",
	}[f.Name]
}

// methodOf is the method of an operation's form.
func methodOf(o kit.Operation) string {
	if o.Changes {
		return "post"
	}
	return "get"
}

func (h *Handler) answer(w http.ResponseWriter, r *keyfuncs.Request, status int, v view) {
	var body []byte
	var err error
	kind := "application/json"
	switch {
	case wantsPage(r):
		kind = "text/html; charset=utf-8"
		var text bytes.Buffer
		err = page.Execute(&text, v)
		body = text.Bytes()
	case v.Failed != nil:
		kind = "application/problem+json"
		body, err = json.Marshal(v.Failed)
	case v.List != nil:
		body, err = json.Marshal(v.List)
	default:
		body, err = json.Marshal(v.Result)
	}
	if err != nil {
		h.targets.logger(path.Base(path.Dir(r.URL.Path))).ErrorContext(r.Context(),
			"gatehouse: cannot encode the response to an operator", "err", err)
		http.Error(w, "The response cannot be displayed.", http.StatusInternalServerError)
		return
	}
	header := w.Header()
	header.Set("Content-Type", kind)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	header.Set("Cache-Control", "no-store")
	header.Set("Vary", "Accept")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Frame-Options", "DENY") // for browsers that do not know frame-ancestors
	header.Set("Referrer-Policy", "same-origin")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the operator may have disconnected
}

func (h *Handler) fail(w http.ResponseWriter, r *keyfuncs.Request, status int, detail string) {
	v := view{Failed: &failure{http.StatusText(status), status, detail}}
	if before, last := path.Split(r.URL.Path); last != "" && status != http.StatusForbidden {
		v.Below = h.targets.named(path.Base(before)) != nil
	}
	h.answer(w, r, status, v)
}
