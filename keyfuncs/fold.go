package keyfuncs

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// Folded finds what fn finds in one spelling: see [Fold]. Use it where clients write the text and the
// application reads several spellings as one, such as the name of an account. Otherwise a limit of three
// tries is one of three tries for each spelling: "ann", "Ann", " ann", and "ann" in full-width letters.
//
//	Who: keyfuncs.Folded(keyfuncs.Form("user"))
//
// Look the account up by the same spelling, Fold(r.PostFormValue("user")), so that both agree. A text of
// which nothing is left is [ErrMissing]. It panics for a nil function.
func Folded(fn Func) Func {
	fns := checked("Folded", []Func{fn})
	known := combined("Folded", fns)
	known.finds = func(text string) bool { return Fold(text) == text }
	notFound := missing(known.name)
	return described(known, func(r *Request) (string, error) {
		text, err := ask(fns[0], r, "Folded", 0)
		if err != nil {
			return "", err
		}
		return found(Fold(text), notFound)
	})
}

// Fold returns a text in lower case and in Unicode's normalization form NFKC, without blanks around it. So
// texts that differ in case, in the width or style of letters, or in how accents are encoded become one. It
// does not fold letters that only look alike, such as a Cyrillic and a Latin a, and removes nothing within.
func Fold(text string) string {
	text = norm.NFKC.String(strings.Map(lower, norm.NFKC.String(text)))
	return strings.TrimSpace(text)
}

// lower returns a letter in lower case. Letters that share a capital are one, such as the two small sigmas.
func lower(r rune) rune {
	if r < unicode.MaxASCII {
		return unicode.ToLower(r)
	}
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		if unicode.IsUpper(other) {
			return unicode.ToLower(other)
		}
	}
	return unicode.ToLower(r)
}
