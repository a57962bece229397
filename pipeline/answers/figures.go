package answers

import (
	"cmp"
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// Headers says which figures of a rule clients see in the header of every response, allowed or refused. The
// zero value sends the fields RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers,
// revision 11.
//
//	RateLimit-Policy: "site";q=100;w=60
//	RateLimit: "site";r=42;t=60
//
// # Meaning
//
// The rule allows at most q units in w seconds. r units are left. In t seconds at least one more is: before
// that, asking again cannot help. There is no t where the guard does not know it. A policy has the name of
// its guard. If a guard has several limits, the names contain the window, as in "api/1s" and "api/24h".
// Then RateLimit-Policy lists all of them, and RateLimit has the binding limit, which is closest to its
// end. A guard with levels names the levels, as in "api/org" and "api/user", and RateLimit has all of them.
// Several rules add several items, also from several middlewares. A rule that let the request pass by its
// Allow list or its NoKey appears in neither field, nor does a shadowed rule (see [Rollout]).
//
// Guards that name a unit in their Traits have such figures: rate limits, quotas and semaphores. The figures
// of votes, stocks and shares do not help clients to pace themselves, so these guards send none unless Unit
// is set.
//
// # Failed requests
//
// Units that a failed request gives back (see Rule.Failed) count as left in the header of its response.
// They are back in Redis when the handler has returned, so an earlier request may be refused. The figures
// leave out what other requests take and give back meanwhile. Where the handler says what the request has
// cost (see [Spend]), the figures are those of the estimate.
//
// # CORS
//
// If the response has Access-Control-Allow-Origin, the fields are added to Access-Control-Expose-Headers.
// Put the CORS middleware around the rules: then refusals have its fields too. If it is inside rules that
// need not see the response, such as plain rate limits, these rules look at the header only if the request
// has an Origin. Requests from pages of other origins have it.
//
// # Refusals
//
// A refused response has the policies of the rules that were asked, and the figures of the rule that
// refused, since the other rules of the middleware have given back what they took. Retry-After has the t of
// that rule, or a later time if a middleware around it used its last unit for the request.
type Headers struct {
	// Hide hides the rule's figures and name from clients. Retry-After stays.
	Hide bool
	// Legacy adds X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset for older clients.
	// X-RateLimit-Reset is a Unix time in seconds, by the clock of this process. These fields describe one
	// rule only: the one that refused, else the one with the least left.
	Legacy bool
	// Unit is the unit of the rule's figures (parameter qu), if it differs from that of the guard, such as
	// "content-bytes" for a limit whose Cost is the length of the body. The draft's registry of units has
	// "requests" (the default), "content-bytes" and "concurrent-requests". The "items" of quotas are not in
	// it.
	Unit string
	// PartitionKey finds the key that tells clients which of several budgets a response is about (parameter
	// pk), such as keyfuncs.Param("tenant"). Clients see it, so it must not be a secret. If it is nil or
	// returns an error, there is no pk.
	PartitionKey keyfuncs.Func
}

// The names of the fields in the canonical form of http.Header.
const (
	fieldPolicy    = "Ratelimit-Policy"
	fieldLimit     = "Ratelimit"
	fieldMax       = "X-Ratelimit-Limit"
	fieldRemaining = "X-Ratelimit-Remaining"
	fieldReset     = "X-Ratelimit-Reset"
)

// Fields are the figures of one middleware's rules, as header fields.
type Fields struct {

	// values are those of RateLimit-Policy and RateLimit. Headers refer to them, so they never change.
	values [2]string
	// spent is the number of seconds until the last of the used-up limits resets.
	spent int64
	rare  *rare // nil: nothing of it; one pointer, since each request has fields
}

// rare is what few rules have.
type rare struct {
	legacy *legacy // nil: no rule has legacy fields
	tokens *token  // that the client keeps; nil: none
	around *Fields // of the middleware around the rules; nil: there is none
}

// more returns what few rules have, for the first time too.
func (f *Fields) more() *rare {
	if f.rare == nil {
		f.rare = new(rare)
	}
	return f.rare
}

// around returns the fields of the middleware around the rules; nil: there are none.
func (f *Fields) around() *Fields {
	if f.rare == nil {
		return nil
	}
	return f.rare.around
}

// legacy returns the figures of the legacy fields; nil: there are none.
func (f *Fields) legacy() *legacy {
	if f.rare == nil {
		return nil
	}
	return f.rare.legacy
}

// tokens returns what the client keeps; nil: nothing.
func (f *Fields) tokens() *token {
	if f.rare == nil {
		return nil
	}
	return f.rare.tokens
}

// legacy are the figures of the rule that the legacy fields describe.
type legacy struct {
	max, remaining, reset int64
	refused               bool
}

// Figure is what a rule has decided for a request.
type Figure struct {
	Source   *Source
	Decision *core.Decision
	// GoesBack reports that all that the request took will be given back.
	GoesBack bool
}

// FieldsOf makes the fields of one middleware: the decisions of its rules, or, after a refusal, the policies
// of all and the figures of the rule that refused. around are those of the middleware around it.
func FieldsOf(r *keyfuncs.Request, decided []Figure, refusing *Figure, around *Fields) (f Fields) {
	if around != nil {
		f.more().around = around
	}
	var room [2][160]byte // more is rare
	policies, limits := room[0][:0], room[1][:0]
	only := "" // the policies, where they are those of one rule, and constant
	for i := range decided {
		by := &decided[i]
		if by.Source.Traits.KeepsToken {
			f.appendToken(r.Request, by)
		}
		if s, ok := by.advertise(r); ok {
			policies, only = s.addPolicies(policies, only)
			if refusing == nil {
				limits = f.appendLimit(limits, &s)
			}
		}
	}
	if refusing != nil {
		if refusing.Source.Traits.KeepsToken {
			f.appendToken(r.Request, refusing)
		}
		if s, ok := refusing.advertise(r); ok {
			policies, only = s.addPolicies(policies, only)
			if s.Decision.Reason != core.ReasonOverLimit { // else nobody has been asked what is left
				limits = f.appendLimit(limits, &s)
			}
		}
	}
	switch split := len(policies); {
	case only != "":
		f.values = [2]string{only, string(limits)}
	case split > 0:
		both := string(append(policies, limits...))
		f.values = [2]string{both[:split], both[split:]}
	}
	return f
}

// advertised are figures that clients see.
type advertised struct {
	*Figure
	limits    []core.Policy // all limits of the guard, if it has several
	unit, key string
	constant  *constant // nil: all depends on the request
}

// constant is what the figures of a guard with one limit have in all answers.
type constant struct {
	max    int64
	window time.Duration
	name   string // of the policy, as a String (RFC 9651)
	policy string // the item of RateLimit-Policy
}

// advertise reports whether clients see the figures.
func (e *Figure) advertise(r *keyfuncs.Request) (s advertised, ok bool) {
	h := &e.Source.Headers
	s.Figure, s.unit = e, cmp.Or(h.Unit, e.Source.Traits.Unit)
	if h.Hide || e.Decision.Attempt.Shadow || s.unit == "" {
		return s, false
	}
	if s.limits = e.Decision.Policies(); e.Decision.Limit <= 0 && !named(s.limits) {
		return s, false
	}
	if h.PartitionKey != nil {
		r.Logger = e.Source.Logger
		if key, err := h.PartitionKey(r); err == nil {
			s.key = key
		}
	}
	if s.key == "" && len(s.limits) < 2 && !named(s.limits) && e.Decision.Guard == e.Source.Name {
		s.findConstant()
	}
	return s, true
}

// findConstant makes, at the first request, the part of the guard's figures that is the same in all
// answers. If the guard's limits differ between attempts, it is made for those of the first attempt.
func (s *advertised) findConstant() {
	d, c := s.Decision, s.Source.constant.Load()
	if c == nil {
		c = &constant{max: d.Limit, window: d.Window, policy: string(s.appendPolicies(nil)),
			name: string(s.appendItem(nil, core.Policy{Window: d.Window}))}
		s.Source.constant.Store(c)
	}
	if c.max == d.Limit && c.window == d.Window {
		s.constant = c
	}
}

// addPolicies adds the policies of the guard to those of others: to bytes, or to the only ones so far.
func (s *advertised) addPolicies(b []byte, only string) (all []byte, stillOnly string) {
	if s.constant != nil && len(b) == 0 && only == "" {
		return b, s.constant.policy
	}
	return s.appendPolicies(append(b, only...)), ""
}

// appendPolicies appends an item for each limit of the guard.
func (s *advertised) appendPolicies(b []byte) []byte {
	if !named(s.limits) && len(s.limits) < 2 {
		return s.appendPolicy(b, core.Policy{Max: s.Decision.Limit, Window: s.Decision.Window})
	}
	for _, l := range s.limits {
		b = s.appendPolicy(b, l)
	}
	return b
}

// named reports whether the limits have names, and figures of their own.
func named(limits []core.Policy) bool { return len(limits) > 0 && limits[0].Name != "" }

func (s *advertised) appendPolicy(b []byte, l core.Policy) []byte {
	window := l.Window
	b = s.appendItem(b, l)
	b = appendParameter(b, ";q=", l.Max)
	if s.unit != kit.UnitRequests {
		b = append(b, `;qu="`...)
		b = appendPrintable(b, s.unit)
		b = append(b, '"')
	}
	if window > 0 {
		// rounded up, so that the rate is never overstated
		b = appendParameter(b, ";w=", int64((window-1)/time.Second)+1)
	}
	return appendKey(b, s.key)
}

// appendLimit appends the item of the binding limit, or those of all that have names.
func (f *Fields) appendLimit(b []byte, s *advertised) []byte {
	d := s.Decision
	remaining, all := s.left(d.Limit, d.Remaining)
	reset := int64(0)
	switch {
	case all: // nothing is awaited
	case !d.Allowed && d.RetryAfter > 0:
		reset = wholeSeconds(d.RetryAfter) // so Retry-After and t are the same time
	case d.Window > 0:
		reset = wholeSeconds(d.ResetAfter)
	}
	if named(s.limits) {
		for _, l := range s.limits {
			left, _ := s.left(l.Max, l.Remaining)
			b = s.appendFigures(b, l, left, wholeSeconds(l.ResetAfter))
		}
	} else {
		b = s.appendFigures(b, core.Policy{Window: d.Window}, remaining, reset)
	}
	if remaining == 0 {
		f.spent = max(f.spent, reset)
	}
	if s.Source.Headers.Legacy {
		if l := f.legacy(); l == nil || remaining < l.remaining {
			f.more().legacy = &legacy{max: d.Limit, remaining: remaining, reset: reset, refused: !d.Allowed}
		}
	}
	return b
}

// appendFigures appends the item of a limit: units left, and the seconds until there is one more, if there
// are any.
func (s *advertised) appendFigures(b []byte, l core.Policy, remaining, reset int64) []byte {
	switch {
	case s.constant == nil:
		b = s.appendItem(b, l)
	case len(b) > 0:
		b = append(append(b, ", "...), s.constant.name...)
	default:
		b = append(b, s.constant.name...)
	}
	b = appendParameter(b, ";r=", remaining)
	if reset > 0 {
		b = appendParameter(b, ";t=", reset)
	}
	return appendKey(b, s.key)
}

// appendItem begins an item of a List (RFC 9651) with a String, the name of the policy.
func (s *advertised) appendItem(b []byte, l core.Policy) []byte {
	if len(b) > 0 {
		b = append(b, ", "...)
	}
	b = append(b, '"')
	b = appendPolicyName(b, s.Decision.Guard, len(s.limits), l)
	return append(b, '"')
}

// appendPolicyName appends the policy name of a guard's limit. Names of guards contain no slash, so no
// other guard has this policy name.
func appendPolicyName(b []byte, guard string, limits int, l core.Policy) []byte {
	b = appendPrintable(b, guard)
	if l.Name == "" && limits < 2 {
		return b
	}
	b = append(b, '/')
	window := l.Window
	switch {
	case l.Name != "":
		return appendPrintable(b, l.Name)
	case window%time.Hour == 0:
		return append(strconv.AppendInt(b, int64(window/time.Hour), 10), 'h')
	case window%time.Minute == 0:
		return append(strconv.AppendInt(b, int64(window/time.Minute), 10), 'm')
	case window%time.Second == 0:
		return append(strconv.AppendInt(b, int64(window/time.Second), 10), 's')
	}
	return append(strconv.AppendInt(b, int64(window/time.Millisecond), 10), "ms"...)
}

// appendPrintable appends text as the content of a String (RFC 9651). Names of an engine's guards need no
// change. In other names, quotes, backslashes, percent signs and anything outside printable ASCII are
// percent-encoded, so that names are the same in fields and bodies.
func appendPrintable(b []byte, text string) []byte {
	const digits = "0123456789ABCDEF"
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ', c > '~', c == '"', c == '\\', c == '%':
			b = append(b, '%', digits[c>>4], digits[c&15])
		default:
			b = append(b, c)
		}
	}
	return b
}

// appendParameter appends a parameter with an Integer, which has at most 15 digits (RFC 9651, section 3.3.1).
func appendParameter(b []byte, name string, value int64) []byte {
	const most = 999_999_999_999_999
	return strconv.AppendInt(append(b, name...), min(max(value, 0), most), 10)
}

// appendKey appends a partition key as a Byte Sequence (RFC 9651).
func appendKey(b []byte, key string) []byte {
	if key == "" {
		return b
	}
	b = append(b, ";pk=:"...)
	b = base64.StdEncoding.AppendEncode(b, []byte(key))
	return append(b, ':')
}

// Set adds the fields to a header, those around first: they may be missing because the handler writes into
// another header, as inside http.TimeoutHandler. It keeps what other middlewares have set.
func (f *Fields) Set(h http.Header) {
	if f.rare != nil && f.rare.around != nil {
		f.rare.around.Set(h)
	}
	for i, name := range [...]string{fieldPolicy, fieldLimit} {
		switch value := f.values[i]; {
		case value == "" || slices.Contains(h[name], value):
		case h[name] == nil:
			h[name] = f.values[i : i+1 : i+1] // no allocation; an append makes a copy
		default:
			h[name] = append(h[name], value)
		}
	}
	if f.rare == nil {
		return
	}
	if f.rare.legacy != nil {
		f.rare.legacy.put(h)
	}
	keep(h, f.rare.tokens)
}

func (l *legacy) put(h http.Header) {
	there, err := strconv.ParseInt(h.Get(fieldRemaining), 10, 64)
	if err == nil && there <= l.remaining && !l.refused {
		return
	}
	h.Set(fieldMax, strconv.FormatInt(l.max, 10))
	h.Set(fieldRemaining, strconv.FormatInt(l.remaining, 10))
	h.Set(fieldReset, strconv.FormatInt(time.Now().Unix()+l.reset, 10))
}

// Correct replaces earlier fields in a header, since failed rules will give back their units.
func (f *Fields) Correct(before *Fields, h http.Header) {
	if i := slices.Index(h[fieldLimit], before.values[1]); i >= 0 && before.values[1] != "" {
		h[fieldLimit] = slices.Clone(h[fieldLimit]) // other headers may have the same values
		h[fieldLimit][i] = f.values[1]
	}
	if l := f.legacy(); l != nil && h.Get(fieldRemaining) == strconv.FormatInt(before.legacy().remaining, 10) {
		h.Del(fieldRemaining) // put keeps the figures with less left
		l.put(h)
	}
}

// left returns what is left of a limit, and whether that is all of it.
func (e *Figure) left(limit, remaining int64) (left int64, all bool) {
	if left = max(remaining, 0); !e.GoesBack {
		return left, false
	}
	left = min(left+max(e.Decision.Attempt.Cost, 1), limit)
	return left, left == limit
}

// IsOwn reports whether a header field, in its canonical form, is one of the rules' own.
func IsOwn(field string) bool {
	switch field {
	case fieldPolicy, fieldLimit, fieldMax, fieldRemaining, fieldReset, ReplayedHeader, TokenHeader:
		return true
	}
	return false
}
