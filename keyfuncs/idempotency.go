package keyfuncs

import "strings"

const maxIdempotencyKey = 255

// IdempotencyKey finds the Idempotency-Key header, by which a client marks a request as a repetition
// (draft-ietf-httpapi-idempotency-key-header-07). It identifies an operation, not a client: every client
// chooses its own keys. A rule joins the key with the actor. Elsewhere, join it yourself (see [JoinTexts]).
//
// The draft makes it a String of RFC 9651 (section 3.3.3), in double quotes:
//
//	Idempotency-Key: "8e03978e-40d5-43e8-bc93-6894a57f9324"
//
// Most clients send it without quotes. That form is accepted too, if it is visible ASCII without quotes,
// backslashes, commas or semicolons, which could mean something else. Both forms of one text are one key:
// the text itself.
//
// An absent or empty key is [ErrMissing], which [Require] turns into an error of the client. A key that has
// neither form, is longer than 255 bytes, has parameters, or comes in several different lines is
// [ErrMalformed]: to ignore it would turn a repetition into a second order.
func IdempotencyKey() Func {
	const name = "IdempotencyKey()"
	notFound := missingField(name, "Idempotency-Key")
	return Named(name, func(r *Request) (string, error) {
		value, ok := single(r.Header["Idempotency-Key"])
		if !ok {
			return "", malformed(name, "several different keys")
		}
		value = strings.Trim(value, " \t")
		key, ok := bareKey(value)
		if quoted, is := strings.CutPrefix(value, `"`); is {
			key, ok = sfString(quoted)
		}
		switch {
		case !ok:
			return "", malformed(name, "neither a quoted string nor bare visible ASCII")
		case len(key) > maxIdempotencyKey:
			return "", malformed(name, "longer than %d bytes", maxIdempotencyKey)
		}
		return found(key, notFound)
	})
}

// bareKey returns s, and reports whether it can stand without quotes.
func bareKey(s string) (key string, ok bool) {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || c == '"' || c == '\\' || c == ',' || c == ';' {
			return "", false
		}
	}
	return s, true
}

// sfString reads a String (RFC 9651, section 4.2.5) behind its opening quote. Only quotes and backslashes
// may be escaped, and nothing may follow: the draft's grammar has no parameters.
func sfString(s string) (key string, ok bool) {
	var text strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '"':
			return text.String(), i == len(s)-1
		case c < ' ' || c >= 0x7f:
			return "", false
		case c == '\\':
			if i++; i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", false
			}
			c = s[i]
		}
		text.WriteByte(c)
	}
	return "", false
}
