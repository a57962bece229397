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
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/internal/warn"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
)

// Options configures [New].
type Options struct {
	// Rules are the application's rules. The handler shows their guards, their bans and their rollouts.
	Rules []nethttpmw.Rule
	// Guards are further guards to show, such as those that no route uses.
	Guards []core.Guard
	// Tools are what the application calls by name, without rules, such as delay queues.
	Tools []kit.Tool
	// Shown are reading actions whose results the page of the list shows at a glance, such as the status of a
	// sale: {Guard: "sale", Name: "status", Fields: map[string]string{"item": "tv"}}. Actions without fields,
	// such as the counts of a queue, are shown without being named here. Action.Changes is ignored.
	Shown []Action
	// Authorize decides whether a request may perform an action, and names the operator for the audit. An
	// error denies the request with 403 and is logged, for each action the first one and then one per minute.
	// It is called once for each action and for the list, before any guard is asked, from many goroutines at
	// once. For the page of the list it is also called for each action that is shown there; those that it
	// denies are left out, without a log. Required.
	Authorize func(r *http.Request, a Action) (operator string, err error)
	// Audit records changes. It is called before a change and again after it. When the first call returns an
	// error, the change is not made; an error of the second call is logged. It is called from many goroutines
	// at once. Nil: events go to the logger of the guard's engine.
	Audit func(ctx context.Context, e Event) error
}

// Action is what an operator asks for.
type Action struct {
	// Guard is the name of the guard. It is empty for the list of guards.
	Guard string
	// Name is the name of the action, such as "peek" or "restock". It is empty for the list of guards.
	Name string
	// Changes reports whether the action changes something. An action that only reads does not.
	Changes bool
	// Fields are the fields of the request, such as "actor", as unparsed text.
	Fields map[string]string
}

// Event is one of the two audit records of a change: see [Options].Audit.
type Event struct {
	// Time is when the event occurred, by the clock of this process.
	Time time.Time
	// Operator is the name that Authorize returned.
	Operator string
	// Action is the requested action.
	Action Action
	// Done is false before the change and true after it.
	Done bool
	// Err is the error of the change: it was not made, or its result is unknown. It is nil before the change,
	// and when the change succeeded.
	Err error
}

// New returns the handler of an operator. It is safe for concurrent use. It panics on options that cannot
// work: no Authorize, nothing to show, a nil guard or tool, two different guards or tools with the same name,
// a guard with two operations of the same name, two rules of a guard with different rollouts, or an action in
// Shown that does not exist, changes something or has wrong fields.
func New(o Options) http.Handler {
	if o.Authorize == nil {
		panic("operator: New requires Options.Authorize: without it anyone could change anything")
	}
	h := &handler{options: o, targets: targetsOf(o)}
	if o.Audit == nil {
		h.options.Audit = h.auditToLog
	}
	h.glances = h.glancesOf(o.Shown)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", h.list)
	mux.HandleFunc("/{guard}/{action}", h.act)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		h.fail(w, r, http.StatusNotFound, "Page not found.")
	})
	return http.NewCrossOriginProtection().Handler(mux)
}

type handler struct {
	options Options
	targets targets
	glances map[string][]glance // by the name of the guard
	denied  warn.Sample[deniedKind]
}

// deniedKind is an action that was denied. Both names are empty where the handler does not know it, since
// then the client has chosen them.
type deniedKind struct{ guard, action string }

// confirmed is the parameter of the URL by which a page's form says that the operator has confirmed a change.
// Fields of a change are read from the body only, so it is none of them.
const confirmed = "confirmed"

// bodyMost is the maximum size of a request body, in bytes.
const bodyMost = 1 << 16

func (h *handler) list(w http.ResponseWriter, r *http.Request) {
	if _, ok := h.authorize(w, r, Action{}); !ok {
		return
	}
	v := view{Guards: h.targets}
	if wantsPage(r) {
		v.Cards, v.Down = h.cards(r), h.down()
	}
	h.answer(w, r, http.StatusOK, v)
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
	if do == nil { // after Authorize: the answer tells which guards exist
		h.fail(w, r, http.StatusNotFound, "The guard or the action does not exist.")
		return
	}
	if !h.allowsMethod(w, r, do) {
		return
	}
	if unread != nil {
		h.fail(w, r, http.StatusBadRequest, unread.Error())
		return
	}
	in, err := do.Read(h.targets.texts(asked))
	if err != nil { // before the audit and the change
		h.fail(w, r, http.StatusBadRequest, err.Error())
		return
	}
	if wantsPage(r) && do.Changes && !do.Reversible && !r.URL.Query().Has(confirmed) {
		h.answer(w, r, http.StatusOK, view{Asked: &asked, Confirm: true})
		return
	}
	result, err := h.run(r.Context(), do, in, operator, asked)
	if err != nil {
		h.failFor(w, r, asked, err)
		return
	}
	h.answer(w, r, http.StatusOK, view{Asked: &asked, Result: shown(result)})
}

// allowsMethod reports whether the request's method fits the operation. Where it does not, allowsMethod
// writes the response.
func (h *handler) allowsMethod(w http.ResponseWriter, r *http.Request, do *kit.Operation) bool {
	switch {
	case do.Changes && r.Method != http.MethodPost:
		w.Header().Set("Allow", "POST")
		h.fail(w, r, http.StatusMethodNotAllowed, "This action changes something. Use POST.")
		return false
	case !do.Changes && r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		h.fail(w, r, http.StatusMethodNotAllowed, "This action only reads. Use GET.")
		return false
	}
	return true
}

// errUnrecorded means that a change was not made because its audit event could not be written.
var errUnrecorded = errors.New("the audit event was not written, so the change was not made")

// run runs an operation. It audits the operation if it changes something.
func (h *handler) run(
	ctx context.Context, do *kit.Operation, in kit.Input, operator string, asked Action,
) (any, error) {
	if !do.Changes {
		return do.Run(ctx, in)
	}
	ctx = context.WithoutCancel(ctx) // an operator who closes the page does not cancel the change or its audit
	if err := h.options.Audit(ctx, Event{Time: time.Now(), Operator: operator, Action: asked}); err != nil {
		return nil, fmt.Errorf("%w: %w", errUnrecorded, err)
	}
	result, err := do.Run(ctx, in)
	ended := Event{Time: time.Now(), Operator: operator, Action: asked, Done: true, Err: err}
	if err := h.options.Audit(ctx, ended); err != nil {
		h.targets.logger(asked.Guard).ErrorContext(ctx,
			"gatehouse: cannot record the result of an operator's change",
			"guard", asked.Guard, "action", asked.Name, "change_err", ended.Err, "err", err)
	}
	return result, err
}

// failFor writes the response to an error of an operation.
func (h *handler) failFor(w http.ResponseWriter, r *http.Request, asked Action, err error) {
	status, detail := explain(err)
	if status >= http.StatusInternalServerError {
		h.targets.logger(asked.Guard).ErrorContext(r.Context(), "gatehouse: operator action failed",
			"guard", asked.Guard, "action", asked.Name, "err", err)
	}
	h.fail(w, r, status, detail)
}

func (h *handler) find(a Action) *kit.Operation {
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
		h.logDenied(r.Context(), a, err)
		h.fail(w, r, http.StatusForbidden, "You are not allowed to do this.")
	}
	return operator, err == nil
}

// logDenied logs the first denial of each action, and then one per minute: anyone can cause them.
func (h *handler) logDenied(ctx context.Context, a Action, err error) {
	var kind deniedKind
	if h.find(a) != nil {
		kind = deniedKind{a.Guard, a.Name}
	}
	if skipped, ok := h.denied.Due(kind); ok {
		h.targets.logger(kind.guard).WarnContext(ctx, "gatehouse: operator action denied",
			"guard", kind.guard, "action", kind.action, "err", err, "denials_not_logged", skipped)
	}
}

// explain returns the response to an error. Causes that an operator cannot correct go to the log only.
func explain(err error) (status int, detail string) {
	switch {
	case errors.Is(err, errUnrecorded):
		return http.StatusServiceUnavailable, "The audit event could not be written. Nothing was changed."
	case errors.Is(err, core.ErrInvalid):
		return http.StatusBadRequest, err.Error()
	case errors.Is(err, core.ErrNotFound):
		return http.StatusNotFound, err.Error()
	case errors.Is(err, core.ErrNotNow):
		return http.StatusConflict, err.Error()
	}
	return http.StatusServiceUnavailable,
		"The action failed, or its result is unknown. The log has the cause. It is safe to try again."
}

// fieldsOf reads the fields of a request. A field that is given twice is an error, because Authorize and the
// guard could use different values.
func fieldsOf(w http.ResponseWriter, r *http.Request) (map[string]string, error) {
	values := r.URL.Query()
	if r.Method == http.MethodPost {
		r.Body = http.MaxBytesReader(w, r.Body, bodyMost)
		kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if kind == "application/json" {
			fields := map[string]string{}
			decoder := json.NewDecoder(r.Body)
			if err := decoder.Decode(&fields); err != nil {
				return nil, errors.New(`the body is not a JSON object of strings, such as {"actor": "ann"}`)
			}
			if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
				return nil, errors.New("the body contains more than one JSON object")
			}
			return fields, nil
		}
		if err := r.ParseForm(); err != nil {
			return nil, errors.New("the form cannot be read or is too long")
		}
		values = r.PostForm
	}
	fields := make(map[string]string, len(values))
	for name, given := range values {
		if len(given) > 1 {
			return nil, fmt.Errorf("field %.100q is given %d times", name, len(given))
		}
		fields[name] = given[0]
	}
	return fields, nil
}

// auditToLog is the default of Options.Audit.
func (h *handler) auditToLog(ctx context.Context, e Event) error {
	fields := make([]any, 0, len(e.Action.Fields))
	for _, name := range slices.Sorted(maps.Keys(e.Action.Fields)) {
		fields = append(fields, slog.String(name, e.Action.Fields[name]))
	}
	attrs := []any{
		"operator", e.Operator, "guard", e.Action.Guard, "action", e.Action.Name, slog.Group("fields", fields...),
		"done", e.Done,
	}
	if e.Err != nil {
		attrs = append(attrs, "err", e.Err)
	}
	h.targets.logger(e.Action.Guard).InfoContext(ctx, "gatehouse: operator change", attrs...)
	return nil
}

// wantsPage reports whether the client accepts pages, as browsers do.
func wantsPage(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }
