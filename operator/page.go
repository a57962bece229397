package operator

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"html/template"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/gatehouse-go/gatehouse/core"
)

// view is the content of one response.
type view struct {
	Guards targets  `json:"guards,omitempty"`
	Asked  *Action  `json:"-"`
	Result any      `json:"result,omitempty"`
	Failed *failure `json:"-"`
	// Below reports whether the page belongs to an action. Then ../ leads to the list of guards.
	Below bool `json:"-"`
}

// failure is the body of an error response (RFC 9457).
type failure struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"json": func(v any) (string, error) {
		text, err := json.MarshalIndent(v, "", "  ")
		return string(text),
			err
	},
	"method": methodOf,
}).Parse(pageText))

// Forms are the operations that the page shows a form for.
func (t *target) Forms() []core.Operation { return t.operations }

// methodOf is the method of an operation's form.
func methodOf(o core.Operation) string {
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
		slog.ErrorContext(r.Context(), "gatehouse: cannot encode the response to an operator", "err", err)
		http.Error(w, "The response cannot be displayed.", http.StatusInternalServerError)
		return
	}
	header := w.Header()
	header.Set("Content-Type", kind)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	header.Set("Cache-Control", "no-store")
	header.Set("Vary", "Accept")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy",
		"default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; "+
			"frame-ancestors 'none'")
	header.Set("Referrer-Policy", "same-origin")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the operator may have disconnected
}

func (h *handler) fail(w http.ResponseWriter, r *http.Request, status int, detail string) {
	h.answer(w, r, status, view{Failed: &failure{http.StatusText(status), status, detail}})
}
