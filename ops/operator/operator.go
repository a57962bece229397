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
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/internal/warn"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// Options configures [New].
type Options struct {
	// Rules are the application's rules. The handler shows their guards, their bans and their rollouts.
	Rules []pipeline.Rule
	// Lists are further lists of rules, by name, such as those of a file of rules.
	Lists []List
	// Guards are further guards to show, such as those that no route uses.
	Guards []core.Guard
	// Tools are what the application calls by name, without rules, such as delay queues.
	Tools []kit.Tool
	// Shown are reading actions whose results the page of the list shows at a glance, such as the status of a
	// sale: {Guard: "sale", Name: "status", Fields: map[string]string{"item": "tv"}}. Actions without fields,
	// such as the counts of a queue, are shown without being named here. Action.Changes is ignored.
	Shown []Action
	// Figures are the live figures of the guards, or nil. They must be an observer of their engine.
	Figures *Figures
	// Authorize decides whether a request may perform an action, and names the operator for the audit. An
	// error, or no name, denies the request with 403 and is logged, for each action the first one and then one
	// per minute. It is called once for each action and for the list, before any guard is asked, from many
	// goroutines at once. For the page of the list it is also called for each action that is shown there.
	// Actions that it denies are left out, without a log. The action "actors" shows a guard's busiest actors.
	// Key functions find in r the values that a login has stored in gin or echo: keyfuncs.User("uid")(r).
	// Required.
	Authorize func(r *keyfuncs.Request, a Action) (operator string, err error)
	// Origins are further addresses at which browsers see the pages, such as "http://ops.example:8080", as
	// their Origin header has them. They are needed where a proxy does not pass the Host on as the browser sent
	// it, such as nginx with "proxy_set_header Host $host", which drops the port: then changes are refused over
	// plain http. Nil: the Host of the request is the only one.
	Origins []string
	// Audit records changes. It is called before a change and again after it. When the first call returns an
	// error, the change is not made. An error of the second call is logged. It is called from many goroutines
	// at once. Nil: events go to the logger of the guard's engine.
	Audit func(ctx context.Context, e Event) error
}

// List is a list of rules: those of a middleware, in their order.
type List struct {
	// Name is the name of the list, for people.
	Name string
	// Rules are the rules.
	Rules []pipeline.Rule
}

// Action is what an operator asks for.
type Action struct {
	// Guard is the name of the guard. It is empty for the list of guards.
	Guard string
	// Name is the name of the action, such as "peek" or "restock". It is empty for the list of guards.
	Name string
	// Changes reports whether the action changes something, or shows what users have sent, such as the contents
	// of a task: both are recorded. An action that only reads does not.
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

// New returns the pages of an operator. It panics on options that cannot work: no Authorize, nothing to show,
// a nil guard or tool, two different guards or tools with the same name, a guard with two operations of the
// same name, two rules of a guard with different rollouts in one list, or an action in Shown that does not
// exist, changes something or has wrong fields.
func New(o Options) *Handler {
	if o.Authorize == nil {
		panic("operator: New requires Options.Authorize: without it anyone could change anything")
	}
	h := &Handler{options: o, targets: targetsOf(o)}
	for _, origin := range o.Origins {
		if err := h.origins.AddTrustedOrigin(origin); err != nil {
			panic(fmt.Sprintf("operator: Options.Origins has %q: write it as browsers do, such as "+
				"\"http://ops.example:8080\"", origin))
		}
	}
	if o.Audit == nil {
		h.options.Audit = h.auditToLog
	}
	h.glances = h.glancesOf(o.Shown)
	return h
}

// Handler is the pages of an operator: mux.Handle("/ops/", handler) on net/http, r.Any("/ops/*page",
// ginmw.Page(handler)) on gin, e.Any("/ops/*", echomw.Page(handler)) on echo. It may be mounted anywhere,
// since it reads only the end of a path. It is safe for concurrent use.
type Handler struct {
	options Options
	targets targets
	glances map[string][]glance // by the name of the guard
	denied  warn.Sample[deniedKind]
	origins http.CrossOriginProtection
}

// ServeHTTP serves net/http, and routers like it.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.ServePage(w, &keyfuncs.Request{Request: r})
}

// ServePage implements [pipeline.Page], for the functions Page of the adapters to frameworks.
func (h *Handler) ServePage(w http.ResponseWriter, r *keyfuncs.Request) {
	if err := h.origins.Check(r.Request); err != nil {
		h.fail(w, r, http.StatusForbidden, otherSite(r.Request))
		return
	}
	before, last := path.Split(r.URL.Path)
	_, guard := path.Split(strings.TrimSuffix(before, "/"))
	switch {
	case last != "" && guard != "":
		h.act(w, r, Action{Guard: guard, Name: last})
	case last != "":
		h.fail(w, r, http.StatusNotFound, "Page not found.")
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		h.fail(w, r, http.StatusMethodNotAllowed, "This page only reads. Use GET.")
	default:
		h.list(w, r)
	}
}

// otherSite says why a change by a page of another origin was refused. Where only the port differs, that is
// the proxy's doing.
func otherSite(r *http.Request) string {
	const text = "This request comes from another site."
	origin, err := url.Parse(r.Header.Get("Origin"))
	if err != nil || origin.Port() == "" || !strings.EqualFold(origin.Hostname(), r.Host) {
		return text
	}
	return fmt.Sprintf("The page is at port %s, and the request has arrived without a port. If a proxy has "+
		"dropped it, let the proxy pass on the Host as it is (nginx: proxy_set_header Host $http_host), or name "+
		"the page's address in Options.Origins.", origin.Port())
}

// deniedKind is an action that was denied. Both names are empty where the handler does not know it, since
// then the client has chosen them.
type deniedKind struct{ guard, action string }

// confirmed is the parameter of the URL by which a page's form says that the operator has confirmed a change.
// Fields of a change are read from the body only, so it is none of them.
const confirmed = "confirmed"

// bodyMost is the maximum size of a request body, in bytes.
const bodyMost = 1 << 16

func (h *Handler) list(w http.ResponseWriter, r *keyfuncs.Request) {
	if _, ok := h.authorize(w, r, Action{}); !ok {
		return
	}
	v := view{List: h.listFor(r)}
	if wantsPage(r) {
		v.Sections = h.sections(r, v.List)
	}
	h.answer(w, r, http.StatusOK, v)
}

func (h *Handler) act(w http.ResponseWriter, r *keyfuncs.Request, asked Action) {
	do := h.find(asked)
	asked.Changes = do != nil && do.Changes
	var unread error
	asked.Fields, unread = fieldsOf(w, r.Request)
	operator, ok := h.authorize(w, r, asked)
	if !ok {
		return
	}
	if do == nil { // after Authorize: the answer tells which guards exist
		h.fail(w, r, http.StatusNotFound, "The guard or the action does not exist.")
		return
	}
	for _, field := range do.Fields {
		if field.Caller && asked.Fields != nil {
			asked.Fields[field.Name] = operator
		}
	}
	h.perform(w, r, allowed{do, operator, asked, unread})
}

// allowed is an action that Authorize has allowed.
type allowed struct {
	do       *kit.Operation
	operator string
	asked    Action
	unread   error // why its fields could not be read; or nil
}

// perform does what Authorize has allowed.
func (h *Handler) perform(w http.ResponseWriter, r *keyfuncs.Request, a allowed) {
	do, operator, asked, unread := a.do, a.operator, a.asked, a.unread
	// A link to a change asks, and changes nothing.
	asks := wantsPage(r) && do.Changes && r.Method == http.MethodGet
	if !asks && !h.allowsMethod(w, r, do) {
		return
	}
	if unread != nil {
		h.fail(w, r, http.StatusBadRequest, unread.Error())
		return
	}
	if asks {
		h.answer(w, r, http.StatusOK, view{Asked: &asked, Form: formOf(do, &asked), Below: true})
		return
	}
	in, err := do.Read(h.targets.texts(asked))
	if err != nil { // before the audit and the change
		h.fail(w, r, http.StatusBadRequest, err.Error())
		return
	}
	if wantsPage(r) && do.Changes && !do.Reversible && !r.URL.Query().Has(confirmed) {
		h.answer(w, r, http.StatusOK, view{Asked: &asked, Form: formOf(do, &asked), Below: true})
		return
	}
	result, err := h.run(r.Context(), do, in, operator, asked)
	if err != nil {
		h.failFor(w, r, asked, err)
		return
	}
	v := view{Asked: &asked, Result: shown(result), Below: true}
	if wantsPage(r) {
		h.explain(&v, do, result)
	}
	h.answer(w, r, http.StatusOK, v)
}

// explain says the result of an action to people.
func (h *Handler) explain(v *view, do *kit.Operation, result any) {
	v.Says = sentenceOf(result, *v.Asked)
	if _, decided := result.(core.Decision); !decided && result != nil {
		v.Value, _ = valueOf(v.Result) // answer logs values that cannot be encoded
	}
	t := h.targets.named(v.Asked.Guard)
	for _, next := range h.steps(t, v.Asked.Fields) {
		if next.Name != do.Name {
			v.Next = append(v.Next, next)
		}
	}
}

// formOf asks for a change. Fields that it does not have stay out.
func formOf(do *kit.Operation, asked *Action) *form {
	f := &form{Asked: asked, Lasting: !do.Reversible}
	for _, field := range do.Fields {
		if asked.Fields[field.Name] == "" {
			f.Missing = append(f.Missing, field)
		}
	}
	return f
}

// allowsMethod reports whether the request's method fits the operation. Where it does not, allowsMethod
// writes the response.
func (h *Handler) allowsMethod(w http.ResponseWriter, r *keyfuncs.Request, do *kit.Operation) bool {
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
func (h *Handler) run(
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
func (h *Handler) failFor(w http.ResponseWriter, r *keyfuncs.Request, asked Action, err error) {
	status, detail := explained(err)
	if status >= http.StatusInternalServerError {
		h.targets.logger(asked.Guard).ErrorContext(r.Context(), "gatehouse: operator action failed",
			"guard", asked.Guard, "action", asked.Name, "err", err)
	}
	h.fail(w, r, status, detail)
}

func (h *Handler) find(a Action) *kit.Operation {
	if t := h.targets.named(a.Guard); t != nil {
		return t.find(a.Name)
	}
	return nil
}

func (h *Handler) authorize(w http.ResponseWriter, r *keyfuncs.Request, a Action) (operator string, ok bool) {
	a.Fields = maps.Clone(a.Fields)
	operator, err := h.may(r, a)
	if err != nil {
		h.logDenied(r.Context(), a, err)
		h.fail(w, r, http.StatusForbidden, "You are not allowed to do this.")
	}
	return operator, err == nil
}

// errNameless denies what nobody would have done: the audit would have no name.
var errNameless = errors.New("operator: Authorize returned no name and no error: return the name of who is " +
	"logged in, or an error")

// may asks Authorize.
func (h *Handler) may(r *keyfuncs.Request, a Action) (operator string, err error) {
	if operator, err = h.options.Authorize(r, a); err == nil && operator == "" {
		err = errNameless
	}
	return operator, err
}

// logDenied logs the first denial of each action, and then one per minute: anyone can cause them.
func (h *Handler) logDenied(ctx context.Context, a Action, err error) {
	var kind deniedKind
	if h.find(a) != nil {
		kind = deniedKind{a.Guard, a.Name}
	}
	if skipped, ok := h.denied.Due(kind); ok {
		h.targets.logger(kind.guard).WarnContext(ctx, "gatehouse: operator action denied",
			"guard", kind.guard, "action", kind.action, "err", err, "denials_not_logged", skipped)
	}
}

// explained returns the response to an error. Causes that an operator cannot correct go to the log only.
func explained(err error) (status int, detail string) {
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
		if name == format && r.Method != http.MethodPost {
			continue
		}
		if len(given) > 1 {
			return nil, fmt.Errorf("field %.100q is given %d times", name, len(given))
		}
		fields[name] = given[0]
	}
	return fields, nil
}

// auditToLog is the default of Options.Audit.
func (h *Handler) auditToLog(ctx context.Context, e Event) error {
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

// format is the parameter of the URL by which a browser asks for JSON: ?format=json.
const format = "format"

// wantsPage reports whether the client accepts pages, as browsers do, and has not asked for JSON.
func wantsPage(r *keyfuncs.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/html") && r.URL.Query().Get(format) != "json"
}
