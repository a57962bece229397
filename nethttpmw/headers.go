package nethttpmw

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// Headers says what a rule tells clients of its figures, in the header of every answer, allowed or refused. The zero value is the
// standard: the fields RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers, revision 11.
//
//	RateLimit-Policy: "site";q=100;w=60
//	RateLimit: "site";r=42;t=60
//
// At most q units are let through in w seconds; r of them are left, for the next t seconds at least. A policy is named by its guard; where
// a guard has several limits, by the guard and the window, as in "api/1s" and "api/24h". Then RateLimit-Policy has all of
// them and RateLimit the one that is nearest to its end. Several rules are several items, also when they stand in several middlewares.
// A rule that a list of its own or Rule.NoKey has let pass is in neither field, and neither is one in the shadow (see Rollout).
//
// The guards that say a unit in their Traits have such figures: rate limits, and Quota. What there is of votes, stocks and shares
// is nothing for clients to pace themselves by, so those say nothing, unless Unit is set.
//
// A refused answer has the policies of the rules that were asked, and the figures of the one that refused: what the others of the same
// middleware had taken has been given back. Its Retry-After is the t of that rule, or later, where a middleware around it has let the
// request through with its last unit.
type Headers struct {
	// Hide tells clients nothing of the rule: neither its figures nor its name. Retry-After stays.
	Hide bool
	// Legacy adds X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset for older clients. The last is a Unix time in
	// seconds, by this process's clock. They have room for one rule only: the one that refuses, else the one with the least left.
	Legacy bool
	// Unit is what the rule's units are (parameter qu), where it is not as the guard says: "content-bytes", for a limit whose Cost is
	// the length of the body. The draft has a registry of units, with "requests", which is the default, "content-bytes" and
	// "concurrent-requests" in it; the "items" of Quota are not.
	Unit string
	// PartitionKey finds what tells clients which of several budgets an answer is about (parameter pk), such as
	// keyfuncs.Param("tenant"). Clients see what it returns, so it must not be a secret. Nil, or an error: it is not said.
	PartitionKey keyfuncs.Func
}

// The fields, as http.Header has their names.
const (
	fieldPolicy    = "Ratelimit-Policy"
	fieldLimit     = "Ratelimit"
	fieldMax       = "X-Ratelimit-Limit"
	fieldRemaining = "X-Ratelimit-Remaining"
	fieldReset     = "X-Ratelimit-Reset"
)

// fields are what one middleware says of its rules' figures.
type fields struct {
	policies, limits string
	// spent is in how many seconds the last limit ends of those that have nothing left.
	spent  int64
	legacy legacy
}

// legacy are the figures that there is room for in the older fields.
type legacy struct {
	set                   bool
	max, remaining, reset int64
	refused               bool
}

// figures makes the fields of one middleware: what its rules have decided, or what they had before one of them refused.
func figures(r *keyfuncs.Request, entries []*entry, refusing *entry) (f fields) {
	var room [2][160]byte // more is rare
	policies, limits := room[0][:0], room[1][:0]
	for _, e := range entries {
		if s, ok := e.advertise(r); ok {
			policies = s.appendPolicies(policies)
			if refusing == nil {
				limits = f.appendLimit(limits, s)
			}
		}
	}
	if refusing != nil {
		if s, ok := refusing.advertise(r); ok {
			policies = s.appendPolicies(policies)
			if s.decision.Reason != core.ReasonOverLimit { // else nobody has been asked what is left
				limits = f.appendLimit(limits, s)
			}
		}
	}
	if split := len(policies); split > 0 {
		both := string(append(policies, limits...))
		f.policies, f.limits = both[:split], both[split:]
	}
	return f
}

// advertised is an entry that has figures for clients.
type advertised struct {
	*entry
	limits    []core.Policy // all of its guard's, where it has them
	unit, key string
}

// speak reports whether the entry has figures for clients.
func (e *entry) advertise(r *keyfuncs.Request) (s advertised, ok bool) {
	h := &e.rule.Headers
	if h.Hide || e.decision.Attempt.Shadow || e.decision.Limit <= 0 {
		return s, false
	}
	s.entry, s.unit = e, h.Unit
	if s.unit == "" {
		s.unit = e.rule.traits.Unit
	}
	if s.unit == "" {
		return s, false
	}
	s.limits = e.decision.Policies()
	if h.PartitionKey != nil {
		if key, err := h.PartitionKey(r); err == nil {
			s.key = key
		}
	}
	return s, true
}

// appendPolicies appends an item for each limit of the guard.
func (s *advertised) appendPolicies(b []byte) []byte {
	if len(s.limits) < 2 {
		return s.appendPolicy(b, s.decision.Limit, s.decision.Window)
	}
	for _, l := range s.limits {
		b = s.appendPolicy(b, l.Max, l.Window)
	}
	return b
}

func (s *advertised) appendPolicy(b []byte, most int64, window time.Duration) []byte {
	b = s.appendItem(b, window)
	b = appendParameter(b, ";q=", most)
	if s.unit != core.UnitRequests {
		b = append(b, `;qu="`...)
		b = appendPrintable(b, s.unit)
		b = append(b, '"')
	}
	if window > 0 {
		b = appendParameter(b, ";w=", int64((window-1)/time.Second)+1) // never more units a second than there are
	}
	return appendKey(b, s.key)
}

// appendLimit appends the item of the limit that speaks.
func (f *fields) appendLimit(b []byte, s advertised) []byte {
	d := &s.decision
	remaining, reset := max(d.Remaining, 0), int64(0)
	switch {
	case !d.Allowed && d.RetryAfter > 0:
		reset = wholeSeconds(d.RetryAfter) // so Retry-After and t are the same moment
	case d.Window > 0:
		reset = wholeSeconds(d.ResetAfter)
	}
	b = s.appendItem(b, d.Window)
	b = appendParameter(b, ";r=", remaining)
	if reset > 0 {
		b = appendParameter(b, ";t=", reset)
	}
	if remaining == 0 {
		f.spent = max(f.spent, reset)
	}
	if s.rule.Headers.Legacy && (!f.legacy.set || remaining < f.legacy.remaining) {
		f.legacy = legacy{set: true, max: d.Limit, remaining: remaining, reset: reset, refused: !d.Allowed}
	}
	return appendKey(b, s.key)
}

// appendItem begins an item of a List (RFC 9651): a String, the name of a policy.
func (s *advertised) appendItem(b []byte, window time.Duration) []byte {
	if len(b) > 0 {
		b = append(b, ", "...)
	}
	b = append(b, '"')
	b = appendPolicyName(b, s.decision.Guard, s.limits, window)
	return append(b, '"')
}

// appendPolicyName appends the name of the policy that one of a guard's limits is. Guards have no slash in their names, so it is no other
// guard's.
func appendPolicyName(b []byte, guard string, limits []core.Policy, window time.Duration) []byte {
	b = appendPrintable(b, guard)
	if len(limits) < 2 {
		return b
	}
	b = append(b, '/')
	switch {
	case window%time.Hour == 0:
		return append(strconv.AppendInt(b, int64(window/time.Hour), 10), 'h')
	case window%time.Minute == 0:
		return append(strconv.AppendInt(b, int64(window/time.Minute), 10), 'm')
	case window%time.Second == 0:
		return append(strconv.AppendInt(b, int64(window/time.Second), 10), 's')
	}
	return append(strconv.AppendInt(b, int64(window/time.Millisecond), 10), "ms"...)
}

// appendPrintable appends text as it stands in a String of RFC 9651. The names of an engine's guards are that; what an application's own
// have in theirs beyond printable ASCII, quotes and backslashes is percent-encoded, so that names are the same here and in bodies.
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

// appendParameter appends a parameter that is an Integer, which has at most 15 digits (RFC 9651, section 3.3.1).
func appendParameter(b []byte, name string, value int64) []byte {
	const most = 999_999_999_999_999
	return strconv.AppendInt(append(b, name...), min(max(value, 0), most), 10)
}

// appendKey appends a partition key, which is a Byte Sequence.
func appendKey(b []byte, key string) []byte {
	if key == "" {
		return b
	}
	b = append(b, ";pk=:"...)
	b = base64.StdEncoding.AppendEncode(b, []byte(key))
	return append(b, ':')
}

// SetHeaders adds what the rules say of their figures to the header of an answer, before the handler runs: see Headers. What other
// middlewares have said stays; what those around this one said is added again where it is not there, because the handler writes
// into another header than they did, as behind http.TimeoutHandler.
func (p *Passage) SetHeaders(h http.Header) {
	p.outer.setHeaders(h)
	p.fields.set(h)
}

func (l *link) setHeaders(h http.Header) {
	if l != nil {
		l.outer.setHeaders(h)
		l.passage.fields.set(h)
	}
}

func (f *fields) set(h http.Header) {
	add(h, fieldPolicy, f.policies)
	add(h, fieldLimit, f.limits)
	if f.legacy.set {
		f.legacy.put(h)
	}
}

func add(h http.Header, name, value string) {
	if value != "" && !slices.Contains(h[name], value) {
		h[name] = append(h[name], value)
	}
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
