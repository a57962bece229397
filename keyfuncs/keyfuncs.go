package keyfuncs

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// Request is what a key function reads: the request and, where a web framework routed it, what that
// framework knows of it. The adapters make it; a test or a handler writes &Request{Request: r}.
type Request struct {
	*http.Request

	// Facts are the framework's. They are nil for plain net/http and for chi, which both leave what they
	// know in the http.Request itself.
	Facts Facts
}

// Facts are what a framework knows of a request that net/http does not. The adapters supply them, one value
// a request, so an implementation need not be safe for concurrent use.
type Facts interface {
	// Route returns the matched pattern as it was registered, such as /polls/:poll/votes, or "" when none matched.
	Route() string

	// Param returns a path parameter; ok is false when the route has none of that name.
	Param(name string) (value string, ok bool)

	// Value returns what the app's middleware stored under the name, as Context.Set of gin and echo does.
	Value(name string) (value any, ok bool)
}

// A Func takes one text out of a request: who makes it, what it is about, or both. It is safe for concurrent use,
// keeps nothing of the request, and returns an error rather than an empty text. An error that wraps [ErrMissing]
// says that the request does not carry the thing, one that wraps [ErrMalformed] that it carries something that can
// not be used. Write your own where none here fits; [Join], [FirstOf] and [Hash] take an empty text from it for
// ErrMissing, so that a forgotten check does not put all strangers into one bucket.
type Func func(r *Request) (string, error)

// ErrMissing says that the request does not carry what the function looks for; an empty value counts as that.
// [FirstOf] goes on to its next function.
var ErrMissing = errors.New("keyfuncs: nothing found")

// ErrMalformed says that the request carries something that can not be used. It never falls through in [FirstOf]:
// otherwise anybody could pick the key that he is counted under by sending garbage.
var ErrMalformed = errors.New("keyfuncs: malformed")

// ErrRequired says that the request does not carry what it has to: [Require]. Like ErrMalformed it never falls through in [FirstOf],
// and unlike ErrMissing it lets no request pass a rule, where the rule could do without.
var ErrRequired = errors.New("keyfuncs: required")

// failure is the one error type of the package. Its text does not repeat that of the sentinel it wraps.
type failure struct {
	call string // the function as the user wrote it: Param("poll")
	why  string
	kind error // ErrMissing, ErrMalformed or ErrRequired
}

func (f *failure) Error() string { return "keyfuncs: " + f.call + ": " + f.why }
func (f *failure) Unwrap() error { return f.kind }

// missing makes the error for "not there". It depends on nothing in the request, so functions make it once, at
// set-up: a request without the thing is the common case in FirstOf and should not cost an allocation.
func missing(call string) error {
	return &failure{call: call, why: "nothing found", kind: ErrMissing}
}

func malformed(call, format string, args ...any) error {
	return &failure{call: call, why: fmt.Sprintf(format, args...), kind: ErrMalformed}
}

// quote shows an address that is none, in few enough bytes that a request can not flood the log.
func quote(s string) string {
	if len(s) > 64 {
		return strconv.Quote(s[:64]) + " (cut)"
	}
	return strconv.Quote(s)
}

// misuse reports a mistake in the program, when the function is made and not when the first request comes.
func misuse(format string, args ...any) {
	panic("keyfuncs: " + fmt.Sprintf(format, args...))
}

// single returns the value that all of values are, and false when they differ. A value sent twice with two contents
// may be read one way here and the other way by a proxy or the handler, so no choice among them is the right one.
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

// isToken reports whether s is a token (RFC 9110, section 5.6.2): what header and cookie names are made of.
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
