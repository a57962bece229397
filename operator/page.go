package operator

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"net/http"
	"strconv"

	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
)

// view is the content of one response.
type view struct {
	Guards targets  `json:"guards,omitempty"`
	Asked  *Action  `json:"-"`
	Result any      `json:"result,omitempty"`
	Failed *failure `json:"-"`
	// Cards are the guards of the list, with what is shown of them at a glance; Down are the servers of Redis
	// that are not called.
	Cards []card               `json:"-"`
	Down  []script.OpenBreaker `json:"-"`
	// Confirm reports whether the operator has to confirm the action, a change, before it is made.
	Confirm bool `json:"-"`
	// Below reports whether the page belongs to an action. Then ../ leads to the list of guards.
	Below bool `json:"-"`
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

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"json": func(v any) (string, error) {
		text, err := json.MarshalIndent(v, "", "  ")
		return string(text), err
	},
	"method": methodOf,
	"hint":   hintOf,
	"flag":   func(f kit.Field) bool { return f.Kind == kit.FieldFlag },
	"style":  func() template.HTML { return template.HTML("<style>" + pageStyle + "</style>") },
	"script": func() template.HTML { return template.HTML(`<script type="module">` + pageScript + "</script>") },
}).Parse(pageText))

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
	return map[string]string{ // those that kit.Input.Attempt reads
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

func (h *handler) answer(w http.ResponseWriter, r *http.Request, status int, v view) {
	var body []byte
	var err error
	kind := "application/json"
	switch {
	case wantsPage(r):
		kind = "text/html; charset=utf-8"
		v.Below = r.PathValue("action") != ""
		var text bytes.Buffer
		err = page.Execute(&text, v)
		body = text.Bytes()
	case v.Failed != nil:
		kind = "application/problem+json"
		body, err = json.Marshal(v.Failed)
	case v.Guards != nil:
		body, err = json.Marshal(v)
	default:
		body, err = json.Marshal(v.Result)
	}
	if err != nil {
		h.targets.logger(r.PathValue("guard")).ErrorContext(r.Context(),
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

func (h *handler) fail(w http.ResponseWriter, r *http.Request, status int, detail string) {
	h.answer(w, r, status, view{Failed: &failure{http.StatusText(status), status, detail}})
}
