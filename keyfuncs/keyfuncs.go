package keyfuncs

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
)

// Request is the input of a key function: the request and, where a web framework routed it, the framework's
// facts about it. The adapters make it. Tests and handlers write &Request{Request: r}.
type Request struct {
	*http.Request

	// Facts come from the framework. They are nil for plain net/http and for chi, which keep what they know
	// in the http.Request itself.
	Facts Facts

	// Logger returns the logger for warnings of functions. Nil means slog.Default. Rules set it to the logger
	// of their guard's engine (core.WithLogger) before they call a function.
	Logger func() *slog.Logger
}

// Facts are what a framework knows about a request and net/http does not. The adapters make one value per
// request, so an implementation need not be safe for concurrent use. They may also have a method Unrouted()
// bool, which reports that the router has not run yet, as in echo's Pre: then [Route] warns at the first
// request. It is only called for a request without a route.
type Facts interface {
	// Route returns the matched pattern as it was registered, such as /polls/:poll/votes, or "" when none
	// matched.
	Route() string

	// Param returns a path parameter. ok is false when the route has none of that name.
	Param(name string) (value string, ok bool)

	// Value returns what the app's middleware stored under the name, as Context.Set of gin and echo does.
	Value(name string) (value any, ok bool)
}

// A Func takes one text from a request: its actor, its subject, or both. It must be safe for concurrent
// use, keep nothing of the request, and return an error rather than an empty text. An error that wraps
// [ErrMissing] says that the request does not carry the text. An error that wraps [ErrMalformed] says that
// the request carries something unusable. Write your own where none here fits. [Join], [FirstOf], [Require]
// and [Hash] treat an empty text as ErrMissing, so that a forgotten check does not put all strangers into
// one bucket.
type Func func(r *Request) (string, error)

// ErrMissing says that the request does not carry what the function looks for. An empty value counts as
// missing. [FirstOf] goes on to its next function.
var ErrMissing = errors.New("keyfuncs: nothing found")

// ErrMalformed says that the request carries something unusable. It never falls through in [FirstOf]:
// otherwise clients could pick the key that they are counted under by sending garbage.
var ErrMalformed = errors.New("keyfuncs: malformed")

// ErrRequired says that the request does not carry what it must carry: see [Require]. Like ErrMalformed it
// never falls through in [FirstOf]. Unlike ErrMissing it lets no request pass a rule, even where the rule
// could do without the text.
var ErrRequired = errors.New("keyfuncs: required")

// ErrTooLarge says that the body is larger than the function reads: see [JSON]. Like ErrMalformed it never
// falls through in [FirstOf].
var ErrTooLarge = errors.New("keyfuncs: too large")

// failure is the one error type of the package. Its text does not repeat the text of the sentinel it wraps.
type failure struct {
	call string // the function as the user wrote it: Param("poll")
	of   string // and the one that it has taken
	why  string
	kind error // ErrMissing, ErrMalformed, ErrRequired or ErrTooLarge
	// field is what clients call what they have left out: see FieldOf.
	field string
}

func (f *failure) Error() string { return "keyfuncs: " + f.call + ": " + f.why }
func (f *failure) Unwrap() error { return f.kind }

// FunctionOf returns the key function that an error is from, as the program has it: Param("poll"). It is
// empty for errors of other functions. It has no text of clients.
func FunctionOf(err error) string {
	if none := (*noneError)(nil); errors.As(err, &none) {
		calls := make([]string, len(none.errs))
		for i, err := range none.errs {
			calls[i] = FunctionOf(err)
		}
		return "FirstOf(" + strings.Join(calls, ", ") + ")"
	}
	if f := (*failure)(nil); errors.As(err, &f) {
		if f.of != "" {
			return f.call + "(" + f.of + ")"
		}
		return f.call
	}
	return ""
}

// FieldOf returns the name of the field that a client has left out, where clients know the name because they
// send it: of a [Form] field, a [Query] parameter, a [JSON] member ("order.sku"), or "Idempotency-Key". It is
// empty for all other errors. The names of headers and cookies are not told: a proxy or the application may
// be who sets them, and a client need not know which of them makes somebody.
func FieldOf(err error) string {
	if f := (*failure)(nil); errors.As(err, &f) {
		return f.field
	}
	return ""
}

// missing makes the error for an absent text. The error depends on nothing in the request, so functions
// make it once, at set-up: a request without the text is the common case in FirstOf and should not cost an
// allocation.
func missing(call string) error {
	return &failure{call: call, why: "nothing found", kind: ErrMissing}
}

// missingField is missing for a field that clients know by name.
func missingField(call, field string) error {
	return &failure{call: call, why: "nothing found", kind: ErrMissing, field: field}
}

func malformed(call, format string, args ...any) error {
	return &failure{call: call, why: fmt.Sprintf(format, args...), kind: ErrMalformed}
}

// quote quotes an unreadable address, in few enough bytes that a request cannot flood the log.
func quote(s string) string {
	if len(s) > 64 {
		return strconv.Quote(s[:64]) + " (cut)"
	}
	return strconv.Quote(s)
}

// misuse reports a mistake in the program at set-up, before the first request.
func misuse(format string, args ...any) {
	panic("keyfuncs: " + fmt.Sprintf(format, args...))
}

// single returns the value that all of values equal, and false when they differ. Two different values may
// be read one way here and another way by a proxy or the handler, so no choice among them is right.
func single(values []string) (string, bool) {
	if len(values) == 0 {
		return "", true
	}
	for _, v := range values[1:] {
		if v != values[0] {
			return "", false
		}
	}
	return values[0], true
}

// isToken reports whether s is a token (RFC 9110, section 5.6.2), as header and cookie names are.
func isToken(s string) bool {
	for i := range len(s) {
		if !isTokenByte[s[i]] {
			return false
		}
	}
	return s != ""
}

var isTokenByte = func() (set [256]bool) {
	for _, c := range []byte("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		set[c] = true
	}
	return set
}()
