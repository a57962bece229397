package answers

import (
	"net/http"
	"slices"
	"strings"
)

// form is the form of a refusal's body.
type form int

// The forms. Between equally preferred forms, the first one in this list is used.
const (
	formProblem form = iota
	formPlain
	formPage
)

// mediaTypes are the media types of the forms.
var mediaTypes = [...]string{
	formProblem: "application/problem+json",
	formPlain:   "text/plain; charset=utf-8",
	formPage:    "text/html; charset=utf-8",
}

// negotiate returns the form that the Accept header of a request prefers (RFC 9110, section 12.5.1): the one
// with the highest weight. Among equal weights it is the one that the client names most specifically, so that
// a browser that sends "text/html, */*" gets a page. If the client accepts no form, or sends no Accept
// header, it gets formProblem, which the section allows.
func negotiate(accept []string) form {
	best, found := formProblem, match{}
	for form := range form(len(mediaTypes)) {
		var m match
		for _, line := range accept {
			for line != "" {
				var element string
				element, line = cut(line, ',')
				if one, ok := matchRange(form, element); ok &&
					(one.exact > m.exact || one.exact == m.exact && one.weight > m.weight) {
					m = one // the most specific range has the weight
				}
			}
		}
		if m.weight > found.weight || m.weight == found.weight && m.exact > found.exact && m.weight > 0 {
			best, found = form, m
		}
	}
	return best
}

// match says how well a media range fits a form: its weight in thousandths, and how specific it is, from 1
// for */* to 3 for a media type.
type match struct{ weight, exact int }

// matchRange reports whether an element of Accept fits the form. Parameters other than the weight are
// ignored, as in "text/html;charset=utf-8" or "application/json;odata=verbose".
func matchRange(form form, element string) (m match, ok bool) {
	name, parameters := cut(element, ';')
	name = strings.TrimSpace(name)
	is := func(other string) bool { return strings.EqualFold(name, other) }
	switch {
	case name == "*/*":
		m.exact = 1
	case form == formProblem && is("application/*"), form != formProblem && is("text/*"):
		m.exact = 2
	// Clients of JSON can read problem+json.
	case form == formProblem && (is("application/problem+json") || is("application/json")),
		form == formPlain && is("text/plain"), form == formPage && is("text/html"):
		m.exact = 3
	default:
		return m, false
	}
	m.weight, ok = weightOf(parameters)
	return m, ok
}

// weightOf returns the weight among the parameters of an element, in thousandths; 1000 if there is none.
func weightOf(parameters string) (thousandths int, ok bool) {
	for parameters != "" {
		var one string
		one, parameters = cut(parameters, ';')
		if name, value, _ := strings.Cut(one, "="); strings.EqualFold(strings.TrimSpace(name), "q") {
			return weight(strings.TrimSpace(value))
		}
	}
	return 1000, true
}

// weight parses a qvalue (RFC 9110, section 12.4.2) into thousandths.
func weight(text string) (thousandths int, ok bool) {
	whole, fraction, _ := strings.Cut(text, ".")
	if whole != "0" && whole != "1" || len(fraction) > 3 {
		return 0, false
	}
	for i := range 3 {
		thousandths *= 10
		if i < len(fraction) {
			if fraction[i] < '0' || fraction[i] > '9' {
				return 0, false
			}
			thousandths += int(fraction[i] - '0')
		}
	}
	if whole == "1" {
		return 1000, thousandths == 0
	}
	return thousandths, true
}

// cut cuts text at the first separator that is not inside a quoted string.
func cut(text string, separator byte) (before, after string) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted:
			i++ // skips the escaped character
		case c == separator && !quoted:
			return text[:i], text[i+1:]
		}
	}
	return text, ""
}

// acceptsCoding reports whether a client with these lines of Accept-Encoding can read a content that is
// encoded with these codings (RFC 9110, section 12.5.3). A content that is not encoded is always accepted,
// and without the field no coding is, because many clients that send none cannot decode.
func acceptsCoding(accept []string, codings string) bool {
	for coding := range strings.SplitSeq(codings, ",") {
		coding = strings.TrimSpace(coding)
		if coding != "" && !strings.EqualFold(coding, "identity") && !acceptsOne(accept, coding) {
			return false
		}
	}
	return true
}

func acceptsOne(accept []string, coding string) bool {
	best := match{}
	for _, line := range accept {
		for line != "" {
			var element string
			element, line = cut(line, ',')
			name, parameters := cut(element, ';')
			m := match{exact: 1}
			switch name = strings.TrimSpace(name); {
			case strings.EqualFold(name, coding):
				m.exact = 2
			case name != "*":
				continue
			}
			var ok bool
			if m.weight, ok = weightOf(parameters); ok && m.exact > best.exact {
				best = m
			}
		}
	}
	return best.weight > 0
}

// addToList adds those members to a field that is a list of members which it does not have yet. A Vary of *
// covers all.
func addToList(header http.Header, name, members string) {
	var present []string
	for _, line := range header[name] {
		for line != "" {
			var one string
			one, line = cut(line, ',')
			present = append(present, strings.TrimSpace(one))
		}
	}
	for members != "" {
		var one string
		one, members = cut(members, ',')
		if one = strings.TrimSpace(one); one != "" && !slices.ContainsFunc(present, func(other string) bool {
			return other == "*" && name == "Vary" || strings.EqualFold(other, one)
		}) {
			header.Add(name, one)
			present = append(present, one)
		}
	}
}
