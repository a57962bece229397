package keyfuncs

import (
	"context"
	"encoding"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// valueKey is the type of the context keys of [WithValue], so that they cannot collide with those of other
// packages.
type valueKey string

// WithValue returns a context in which [User] finds v under the name. It is for auth middleware on net/http
// and chi, which have no Context.Set:
//
//	next.ServeHTTP(w, r.WithContext(keyfuncs.WithValue(r.Context(), "uid", account.ID)))
//
// The middleware must run before the rules do, that is, wrap them.
func WithValue(ctx context.Context, name string, v any) context.Context {
	return context.WithValue(ctx, valueKey(name), v)
}

// User finds the user as the app's own auth middleware stored them under the name: with Context.Set of gin
// or echo or, where that does not exist or holds nothing, with [WithValue]. It reads no header, because the
// client chooses headers. Behind an authenticating proxy or middleware that checks or overwrites one, use
// [Header] or [BasicAuth].
//
// The value may be a string, a []byte, any integer, a [json.Number] or float64 that is an integer under
// 2^53 (as the numbers of a JWT arrive), a type made of one of these, a pointer to one, or anything with
// MarshalText or String. One user gives one text, whatever the type: 42, int64(42), 42.0 and "42" are the
// same. Where a string or integer type also has a String method, the value itself counts, because String
// may redact. MarshalText counts before String.
//
// An unset value (nil, a nil pointer, "", 0, the zero value of a type with MarshalText or String) is
// [ErrMissing]: a login that did not happen leaves such a value. Any other value, such as a bool, a struct
// or 1.5, is [ErrMalformed].
func User(name string) Func {
	if name == "" {
		misuse("User needs the name under which your auth middleware stores the user, such as User(\"uid\")")
	}
	call := fmt.Sprintf("User(%q)", name)
	notFound := missing(call)
	key := any(valueKey(name)) // boxed once, not per request
	return Named(call, func(r *Request) (string, error) {
		var value any
		ok := false
		if r.Facts != nil {
			value, ok = r.Facts.Value(name)
		}
		if !ok {
			value = r.Context().Value(key)
		}
		text, ok := userText(value)
		if !ok {
			return "", malformed(call, "a %T that does not name a user; store a string or an integer", value)
		}
		if text == "" {
			return "", notFound
		}
		return text, nil
	})
}

// userText writes a stored value as text, "" for an unset one. ok is false for a value that names nobody.
func userText(value any) (text string, ok bool) {
	switch v := value.(type) { // the usual types; reflect reads the rest
	case nil:
		return "", true
	case string:
		return v, true
	case int64:
		return intText(v), true
	case int:
		return intText(int64(v)), true
	case uint64:
		return uintText(v), true
	case float64:
		return floatText(v)
	case json.Number:
		return numberText(v)
	case []byte:
		return string(v), true
	}
	return kindText(reflect.ValueOf(value))
}

// kindText does for named types and pointers what userText does for the usual types.
func kindText(v reflect.Value) (text string, ok bool) {
	switch v.Kind() {
	case reflect.String:
		return v.String(), true
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return intText(v.Int()), true
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return uintText(v.Uint()), true
	case reflect.Float64:
		return floatText(v.Float())
	case reflect.Pointer:
		if v.IsNil() {
			return "", true // before a method is called on it
		}
		switch kind := v.Elem().Kind(); kind {
		case reflect.String, reflect.Float64, reflect.Slice:
			return userText(v.Elem().Interface())
		default:
			if reflect.Int <= kind && kind <= reflect.Uint64 {
				return userText(v.Elem().Interface())
			}
		}
	}
	return methodText(v)
}

// methodText asks the value itself. MarshalText goes first: it is written for machines, and String may be
// written for people. An unset value is not asked, because the text of a zero UUID looks like any other.
func methodText(v reflect.Value) (text string, ok bool) {
	unset := v.IsZero() || v.Kind() == reflect.Pointer && v.Elem().IsZero()
	switch m := v.Interface().(type) {
	case encoding.TextMarshaler:
		if unset {
			return "", true
		}
		b, err := m.MarshalText()
		return string(b), err == nil
	case fmt.Stringer:
		if unset {
			return "", true
		}
		return m.String(), true
	}
	if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 {
		return string(v.Bytes()), true
	}
	return "", false
}

func intText(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func uintText(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

// floatText writes a float64 that is an integer. From 2^53 on, one float64 stands for several integers, and
// so would be several users.
func floatText(f float64) (text string, ok bool) {
	if f != math.Trunc(f) || math.Abs(f) >= 1<<53 { // the first is true of NaN, the second of infinities
		return "", false
	}
	return intText(int64(f)), true
}

// numberText writes a json.Number without going through float64, so that large IDs stay exact. Some
// languages write 42 as "42.0".
func numberText(n json.Number) (text string, ok bool) {
	if n == "" {
		return "", true
	}
	whole, fraction, _ := strings.Cut(string(n), ".")
	if strings.Trim(fraction, "0") != "" {
		return "", false
	}
	if i, err := strconv.ParseInt(whole, 10, 64); err == nil {
		return intText(i), true
	}
	u, err := strconv.ParseUint(whole, 10, 64)
	return uintText(u), err == nil
}
