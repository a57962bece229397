package nethttpmw

import (
	"net/http"
	"strings"
)

// form is what a refusal's body is written as.
type form int

// The forms. Of two that a client likes as well, it gets the one that comes first here.
const (
	formProblem form = iota
	formPlain
	formPage
)

// mediaTypes are what the forms are sent as.
var mediaTypes = [...]string{
	formProblem: "application/problem+json",
	formPlain:   "text/plain; charset=utf-8",
	formPage:    "text/html; charset=utf-8",
}

// negotiate returns the form that a request asks for by its Accept header (RFC 9110, section 12.5.1): the one with the highest
// weight; among those, the one that the client has named most exactly, so that a browser whose "text/html, */*" has no weights gets
// a page. Where it accepts none of them it gets formProblem, as the section allows, and so does one that does not say.
func negotiate(accept []string) form {
	best, found := formProblem, match{}
	for form := range form(len(mediaTypes)) {
		var m match
		for _, line := range accept {
			for line != "" {
				var element string
				element, line = cut(line, ',')
				if one, ok := matchRange(form, element); ok && (one.exact > m.exact || one.exact == m.exact && one.weight > m.weight) {
					m = one // the most exact range says the weight
				}
			}
		}
		if m.weight > found.weight || m.weight == found.weight && m.exact > found.exact && m.weight > 0 {
			best, found = form, m
		}
	}
	return best
}

// match says how a media range fits a form: how much the client likes it, in thousandths, and how exactly it has named it, from 1
// for a range of everything.
type match struct{ weight, exact int }

// matchRange reports whether an element of Accept fits the form. Parameters other than the weight make no difference, as in
// "text/html;charset=utf-8" or "application/json;odata=verbose".
func matchRange(form form, element string) (m match, ok bool) {
	name, parameters := cut(element, ';')
	name = strings.TrimSpace(name)
	is := func(other string) bool { return strings.EqualFold(name, other) }
	switch {
	case name == "*/*":
		m.exact = 1
	case form == formProblem && is("application/*"), form != formProblem && is("text/*"):
		m.exact = 2
	case form == formProblem && (is("application/problem+json") || is("application/json")), // who reads JSON can read ours
		form == formPlain && is("text/plain"), form == formPage && is("text/html"):
		m.exact = 3
	default:
		return m, false
	}
	m.weight = 1000
	for parameters != "" {
		var one string
		one, parameters = cut(parameters, ';')
		if name, value, _ := strings.Cut(one, "="); strings.EqualFold(strings.TrimSpace(name), "q") {
			m.weight, ok = weight(strings.TrimSpace(value))
			return m, ok
		}
	}
	return m, true
}

// weight reads a qvalue (RFC 9110, section 12.4.2), in thousandths.
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
			i++ // whatever it is
		case c == separator && !quoted:
			return text[:i], text[i+1:]
		}
	}
	return text, ""
}

// varyByAccept says in the header that the answer depends on Accept, beside what it depends on already.
func varyByAccept(header http.Header) {
	for _, line := range header["Vary"] {
		for field := range strings.SplitSeq(line, ",") {
			if field = strings.TrimSpace(field); field == "*" || strings.EqualFold(field, "Accept") {
				return
			}
		}
	}
	header.Add("Vary", "Accept")
}
