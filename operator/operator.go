package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
)

// Options say what an operator's handler is for.
type Options struct {
	// Rules are the application's rules: their guards, bans and rollouts are shown.
	Rules []nethttpmw.Rule
	// Guards are further guards, such as those that no route has.
	Guards []core.Guard
	// Authorize says who the operator is, for the audit, and whether he may do this: an error refuses, with 403, and is logged. It
	// is called for each request, before anything is looked up. Required.
	Authorize func(r *http.Request, a Action) (operator string, err error)
	// Audit keeps the record of changes. It is called before a change, which is not made when it returns an error, and again when it
	// has ended; then an error is logged. Nil: events go to slog.
	Audit func(ctx context.Context, e Event) error
}

// Action is what an operator asks for.
type Action struct {
	// Guard is the guard's name, empty for the list of guards.
	Guard string
	// Name is what is asked of it: "peek", "restock". Empty for the list of guards.
	Name string
	// Changes reports that it changes something, rather than only looks.
	Changes bool
	// Fields are what it is asked with, such as "actor": texts as they came.
	Fields map[string]string
}

// Event is one half of the record of a change.
type Event struct {
	// Time is when it was, by the process's clock.
	Time time.Time
	// Operator is what Authorize has returned.
	Operator string
	// Action is what was asked for.
	Action Action
	// Done is false before the change, and true when it has ended.
	Done bool
	// Err is why it was not made, or why nobody knows. Nil before it, and when it was made.
	Err error
}

// New makes an operator's handler. It panics on options that can not work.
func New(o Options) http.Handler {
	if o.Authorize == nil {
		panic("operator: New without Authorize would let everybody change everything: give a function that says who may do what")
	}
	if o.Audit == nil {
		o.Audit = auditToLog
	}
	h := &handler{options: o, targets: targetsOf(o)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", h.list)
	mux.HandleFunc("/{guard}/{action}", h.act)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		h.fail(w, r, http.StatusNotFound, "There is no such page.")
	})
	return http.NewCrossOriginProtection().Handler(mux)
}

type handler struct {
	options Options
	targets targets
}

// bodyMost is how many bytes the fields of an action may have.
const bodyMost = 1 << 16

func (h *handler) list(w http.ResponseWriter, r *http.Request) {
	if _, ok := h.authorize(w, r, Action{}); ok {
		h.answer(w, r, http.StatusOK, view{Guards: h.targets})
	}
}

func (h *handler) act(w http.ResponseWriter, r *http.Request) {
	asked := Action{Guard: r.PathValue("guard"), Name: r.PathValue("action")}
	do := h.find(asked)
	asked.Changes = do != nil && do.Changes
	var unread error
	asked.Fields, unread = fieldsOf(w, r)
	operator, ok := h.authorize(w, r, asked)
	if !ok {
		return
	}
	if do == nil { // only now: who may not look need not know which there are
		h.fail(w, r, http.StatusNotFound, "There is no such guard, or it has no such action.")
		return
	}
	if !h.allowsMethod(w, r, do) {
		return
	}
	if unread != nil {
		h.fail(w, r, http.StatusBadRequest, unread.Error())
		return
	}
	in, err := do.Read(asked.Fields)
	if err != nil { // before anything is recorded or changed
		h.fail(w, r, http.StatusBadRequest, err.Error())
		return
	}
	result, err := h.run(r.Context(), do, in, operator, asked)
	if err != nil {
		h.failFor(w, r, asked, err)
		return
	}
	h.answer(w, r, http.StatusOK, view{Asked: &asked, Result: shown(result)})
}

// allowsMethod reports whether the operation may be asked for by the request's method, and answers where it
// may not.
func (h *handler) allowsMethod(w http.ResponseWriter, r *http.Request, do *core.Operation) bool {
	switch {
	case do.Changes && r.Method != http.MethodPost:
		w.Header().Set("Allow", "POST")
		h.fail(w, r, http.StatusMethodNotAllowed, "A change is asked for with POST.")
		return false
	case !do.Changes && r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		h.fail(w, r, http.StatusMethodNotAllowed, "This only looks: ask with GET.")
		return false
	}
	return true
}

// errUnrecorded says that a change was not made because there would have been no record of it.
var errUnrecorded = errors.New("no record, no change")

// run runs an operation, and records it where it changes something.
func (h *handler) run(
	ctx context.Context, do *core.Operation, in core.Input, operator string, asked Action,
) (any, error) {
	if !do.Changes {
		return do.Run(ctx, in)
	}
	ctx = context.WithoutCancel(ctx) // a change whose operator has closed the page is made, and recorded
	if err := h.options.Audit(ctx, Event{Time: time.Now(), Operator: operator, Action: asked}); err != nil {
		return nil, fmt.Errorf("%w: %w", errUnrecorded, err)
	}
	result, err := do.Run(ctx, in)
	ended := Event{Time: time.Now(), Operator: operator, Action: asked, Done: true, Err: err}
	if err := h.options.Audit(ctx, ended); err != nil {
		slog.ErrorContext(ctx, "gatehouse: the end of a change is not recorded",
			"guard", asked.Guard, "action", asked.Name, "change_err", ended.Err, "err", err)
	}
	return result, err
}

// failFor answers with what an operator is told of an error.
func (h *handler) failFor(w http.ResponseWriter, r *http.Request, asked Action, err error) {
	status, detail := explain(err)
	if status >= http.StatusInternalServerError {
		slog.ErrorContext(r.Context(), "gatehouse: an operator's action failed",
			"guard", asked.Guard, "action", asked.Name, "err", err)
	}
	h.fail(w, r, status, detail)
}

func (h *handler) find(a Action) *core.Operation {
	for _, t := range h.targets {
		if t.Name != a.Guard {
			continue
		}
		for i := range t.operations {
			if t.operations[i].Name == a.Name {
				return &t.operations[i]
			}
		}
	}
	return nil
}

func (h *handler) authorize(w http.ResponseWriter, r *http.Request, a Action) (operator string, ok bool) {
	a.Fields = maps.Clone(a.Fields)
	operator, err := h.options.Authorize(r, a)
	if err != nil {
		slog.WarnContext(r.Context(), "gatehouse: an operator may not do this", "guard", a.Guard, "action", a.Name, "err", err)
		h.fail(w, r, http.StatusForbidden, "You may not do this.")
	}
	return operator, err == nil
}

// explain says what an operator is told of an error. What they cannot mend goes to the log only.
func explain(err error) (status int, detail string) {
	switch {
	case errors.Is(err, errUnrecorded):
		return http.StatusServiceUnavailable, "The audit can not be written, so nothing was changed."
	case errors.Is(err, core.ErrInvalid):
		return http.StatusBadRequest, err.Error()
	case errors.Is(err, core.ErrNotFound):
		return http.StatusNotFound, err.Error()
	case errors.Is(err, core.ErrNotNow):
		return http.StatusConflict, err.Error()
	}
	return http.StatusServiceUnavailable, "This could not be done, or nobody knows: the log says why. Asking again is safe."
}

// fieldsOf reads what an action is asked with. A field that is given twice is an error: two readers could take different ones.
func fieldsOf(w http.ResponseWriter, r *http.Request) (map[string]string, error) {
	values := r.URL.Query()
	if r.Method == http.MethodPost {
		r.Body = http.MaxBytesReader(w, r.Body, bodyMost)
		kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if kind == "application/json" {
			fields := map[string]string{}
			decoder := json.NewDecoder(r.Body)
			if err := decoder.Decode(&fields); err != nil {
				return nil, errors.New(`the body is no JSON object of texts, such as {"actor": "ann"}`)
			}
			if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
				return nil, errors.New("there is more than one JSON object in the body")
			}
			return fields, nil
		}
		if err := r.ParseForm(); err != nil {
			return nil, errors.New("the form can not be read, or is too long")
		}
		values = r.PostForm
	}
	fields := make(map[string]string, len(values))
	for name, given := range values {
		if len(given) > 1 {
			return nil, fmt.Errorf("%.100q is given %d times", name, len(given))
		}
		fields[name] = given[0]
	}
	return fields, nil
}

// auditToLog is the audit of who has given none.
func auditToLog(ctx context.Context, e Event) error {
	fields := make([]any, 0, len(e.Action.Fields))
	for _, name := range slices.Sorted(maps.Keys(e.Action.Fields)) {
		fields = append(fields, slog.String(name, e.Action.Fields[name]))
	}
	attrs := []any{
		"operator", e.Operator, "guard", e.Action.Guard, "action", e.Action.Name, slog.Group("fields", fields...), "done", e.Done,
	}
	if e.Err != nil {
		attrs = append(attrs, "err", e.Err)
	}
	slog.InfoContext(ctx, "gatehouse: an operator changes something", attrs...)
	return nil
}

// wantsPage reports whether the client is a browser that shows pages.
func wantsPage(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }
