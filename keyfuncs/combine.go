package keyfuncs

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Const finds the same text for every request: one bucket for all of them, or a fixed part of a [Join]. It
// panics for an empty text.
func Const(s string) Func {
	if s == "" {
		misuse("Const needs a text, such as Const(\"everybody\")")
	}
	return described(about{name: fmt.Sprintf("Const(%q)", s), constant: true},
		func(*Request) (string, error) { return s, nil })
}

// Join finds what each function finds, as one text: "a|b". Two lists of parts never give the same text:
// Join puts a "\" before each "|" or "\" within a part, so that clients who choose one part cannot imitate
// another client. It returns the first error. It panics without functions and for a nil one.
func Join(fns ...Func) Func {
	fns = checked("Join", fns)
	known := combined("Join", fns)
	known.parts = joinedParts(fns)
	known.finds = func(text string) bool {
		parts := splitTexts(text)
		for i, part := range parts {
			if len(parts) != len(fns) || !canFind(fns[i], part) {
				return false
			}
		}
		return true
	}
	return described(known, func(r *Request) (string, error) {
		parts := make([]string, len(fns))
		for i, fn := range fns {
			part, err := ask(fn, r, "Join", i)
			if err != nil {
				return "", err
			}
			parts[i] = part
		}
		return JoinTexts(parts...), nil
	})
}

// JoinTexts returns several texts as one, as [Join] does. Rules join the operation ID that a client sends
// with the actor in this way: JoinTexts(actor, key).
func JoinTexts(parts ...string) string {
	var text strings.Builder
	for i, part := range parts {
		if i > 0 {
			text.WriteByte('|')
		}
		text.WriteString(joinEscapes.Replace(part))
	}
	return text.String()
}

// splitTexts undoes JoinTexts.
func splitTexts(text string) []string {
	parts := []string{""}
	for i := 0; i < len(text); i++ {
		last := len(parts) - 1
		switch {
		case text[i] == '|':
			parts = append(parts, "")
			continue
		case text[i] == '\\' && i+1 < len(text):
			i++
		}
		parts[last] += text[i : i+1]
	}
	return parts
}

var joinEscapes = strings.NewReplacer(`\`, `\\`, `|`, `\|`)

// FirstOf returns the text of the first function that finds one, marked with the function's place in the
// list: FirstOf(User("uid"), IP()) is "0=alice" for Alice and "1=203.0.113.7" for a stranger, so a user
// with the name "203.0.113.7" does not share that address's bucket. A new order of the functions changes
// the texts, and so starts the counts anew.
//
// It goes on only after [ErrMissing]. It returns any other error: a client that sends a garbled credential
// does not get a more generous bucket. When no function finds anything, the error wraps ErrMissing and
// lists what FirstOf looked for. It panics without functions and for a nil one.
func FirstOf(fns ...Func) Func {
	fns = checked("FirstOf", fns)
	known := combined("FirstOf", fns)
	known.finds = func(text string) bool {
		place, found, _ := strings.Cut(text, "=")
		i, err := strconv.Atoi(place)
		return err == nil && i >= 0 && i < len(fns) && place == strconv.Itoa(i) && canFind(fns[i], found)
	}
	return described(known, func(r *Request) (string, error) {
		var errs []error
		for i, fn := range fns {
			text, err := ask(fn, r, "FirstOf", i)
			if err == nil {
				return strconv.Itoa(i) + "=" + text, nil
			}
			if !errors.Is(err, ErrMissing) || errors.Is(err, ErrMalformed) {
				return "", err
			}
			errs = append(errs, err)
		}
		return "", &noneError{errs}
	})
}

// Require finds what fn finds, and returns [ErrRequired] where fn finds nothing. The request is then
// answered with 400, even where the rule could do without the text, as it can without an operation ID. An
// API that documents an Idempotency-Key as required says so with
//
//	ID: keyfuncs.Require(keyfuncs.IdempotencyKey())
//
// (draft-ietf-httpapi-idempotency-key-header-07, section 2.7). It panics for a nil function.
func Require(fn Func) Func {
	fns := checked("Require", []Func{fn})
	known := combined("Require", fns)
	inner := aboutOf(fn)
	known.finds = inner.finds
	if inner.address != nil {
		known.address = func(r *Request) (netip.Addr, error) {
			addr, err := inner.address(r)
			return addr, required(err)
		}
	}
	return described(known, func(r *Request) (string, error) {
		text, err := ask(fns[0], r, "Require", 0)
		return text, required(err)
	})
}

// required turns an error for a missing text into an error for a required one.
func required(err error) error {
	if !errors.Is(err, ErrMissing) || errors.Is(err, ErrMalformed) {
		return err
	}
	why := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "keyfuncs: "), "Require: ")
	why = strings.ReplaceAll(why, "\n", " ") // an application's own function may have several lines
	return &failure{call: "Require", of: FunctionOf(err), why: why, kind: ErrRequired, field: FieldOf(err)}
}

// Hash finds the SHA-256 of the text that fn finds, as 43 characters of base64url without padding. Use it
// for API keys, session IDs and other secrets, which a storage key would show to everybody who can read the
// storage.
//
// The hash takes no secret key: anybody who sees it can try texts until one fits. A random API key
// withstands that. An e-mail address or a phone number does not. It panics for a nil function.
func Hash(fn Func) Func {
	fns := checked("Hash", []Func{fn})
	known := combined("Hash", fns)
	known.finds = func(text string) bool {
		sum, err := base64.RawURLEncoding.DecodeString(text)
		return err == nil && len(sum) == sha256.Size
	}
	return described(known, func(r *Request) (string, error) {
		text, err := ask(fns[0], r, "Hash", 0)
		if err != nil {
			return "", err
		}
		sum := sha256.Sum256([]byte(text))
		return base64.RawURLEncoding.EncodeToString(sum[:]), nil
	})
}

// checked returns a copy of fns, which the caller cannot change afterwards.
func checked(name string, fns []Func) []Func {
	if len(fns) == 0 {
		misuse("%s needs at least one function, such as %s(User(\"uid\"))", name, name)
	}
	for i, fn := range fns {
		if fn == nil {
			misuse("%s: function %d is nil; call the one that makes it, such as IP()", name, i)
		}
	}
	return append([]Func(nil), fns...)
}

// ask holds each function to the promises of [Func].
func ask(fn Func, r *Request, name string, i int) (string, error) {
	text, err := fn(r)
	if err == nil && text == "" {
		return "", missing(fmt.Sprintf("%s: function %d", name, i))
	}
	return text, err
}

// noneError is the error of a FirstOf that found nothing: the errors of all its functions, in one line.
type noneError struct{ errs []error }

func (n *noneError) Error() string {
	texts := make([]string, len(n.errs))
	for i, err := range n.errs {
		texts[i] = strings.TrimPrefix(err.Error(), "keyfuncs: ")
	}
	return "keyfuncs: FirstOf: " + strings.ReplaceAll(strings.Join(texts, "; "), "\n", " ")
}

func (n *noneError) Unwrap() []error { return n.errs }
