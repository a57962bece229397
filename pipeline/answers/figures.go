package answers

import (
	"cmp"
	"encoding/base64"
	"strconv"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

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
			f.appendToken(r.Request, by.Source, by.Decision)
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
			f.appendToken(r.Request, refusing.Source, refusing.Decision)
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

// left returns what is left of a limit, and whether that is all of it.
func (e *Figure) left(limit, remaining int64) (left int64, all bool) {
	if left = max(remaining, 0); !e.GoesBack {
		return left, false
	}
	left = min(left+max(e.Decision.Attempt.Cost, 1), limit)
	return left, left == limit
}
