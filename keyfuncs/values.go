package keyfuncs

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Query finds a parameter of the query string, decoded. The client chooses it freely: as Who of a limit
// each made-up value is a client of its own, with a full limit and with keys in Redis. Use it for the
// subject of a request, and check the value first or name the valid ones, as the Choices of a poll do.
//
// A parameter with several different values is [ErrMalformed], because another layer may read another one
// of them. So is an ill-formed query string (RFC 3986, section 3.4; semicolons are not allowed either):
// [net/url.URL.Query] would silently drop a part of it. An absent or empty parameter is [ErrMissing].
func Query(name string) Func {
	if name == "" {
		misuse("Query needs the name of a query parameter, such as Query(\"page\")")
	}
	call := fmt.Sprintf("Query(%q)", name)
	notFound := missingField(call, name)
	return Named(call, func(r *Request) (string, error) {
		if r.URL == nil || r.URL.RawQuery == "" {
			return "", notFound
		}
		values, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			return "", malformed(call, "the query string has a bad escape or a semicolon")
		}
		value, ok := single(values[name])
		if !ok {
			return "", malformed(call, "several different values")
		}
		return found(value, notFound)
	})
}

// Header finds the value of a header field, without blanks around it. The client chooses it freely, unless
// a proxy in front overwrites it. Secrets such as API keys belong in a [Hash].
//
// A limit whose Who is Header("X-Api-Key") stops nobody: each made-up key is a client of its own, with a full
// limit and with keys in Redis. Check the API key first, store whose it is, and limit by that, with [User].
// Limit the attempts to authenticate by [IP].
//
// Several lines with different values are [ErrMalformed]. An absent or empty field is [ErrMissing]. A list
// in one line is one value. Header panics for a name that is no token, and for "Host", which net/http keeps
// elsewhere: see [Host].
func Header(name string) Func {
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case !isToken(name):
		misuse("Header(%q) needs the name of a header field, such as Header(\"X-Api-Key\")", name)
	case canonical == "Host":
		misuse("Header(%q) never finds anything, because net/http removes that field; use Host()", name)
	}
	call := fmt.Sprintf("Header(%q)", name)
	notFound := missing(call)
	return Named(call, func(r *Request) (string, error) {
		value, ok := single(r.Header[canonical])
		if !ok {
			return "", malformed(call, "several different values")
		}
		// HTTP/1 trims the value and HTTP/2 does not: with its blanks, one API key would make many buckets.
		return found(strings.Trim(value, " \t"), notFound)
	})
}

// Cookie finds the value of a cookie. The client chooses it until the app has checked it: a session cookie
// names a user only behind the middleware that looks the session up, and then [User] is the better choice.
// Session IDs are secrets and belong in a [Hash].
//
// Several cookies of the name with different values are [ErrMalformed]: a subdomain can set one beside
// yours (RFC 6265, section 8.6). A cookie that is absent, empty, or so ill-formed that net/http drops it is
// [ErrMissing].
func Cookie(name string) Func {
	if !isToken(name) {
		misuse("Cookie(%q) needs the name of a cookie, such as Cookie(\"session\")", name)
	}
	call := fmt.Sprintf("Cookie(%q)", name)
	notFound := missing(call)
	return Named(call, func(r *Request) (string, error) {
		value := ""
		for i, c := range r.CookiesNamed(name) {
			if i > 0 && c.Value != value {
				return "", malformed(call, "several different values")
			}
			value = c.Value
		}
		return found(value, notFound)
	})
}

// BasicAuth finds the user name of HTTP Basic authentication (RFC 7617). It does not check the password:
// use it behind the middleware that does. Otherwise any client can count as any user and use up their limit,
// and each made-up name is a client of its own, with a full limit and with keys in Redis.
//
// A missing Authorization header, another scheme or an empty user name is [ErrMissing]. Basic credentials
// that cannot be decoded, or several different headers, are [ErrMalformed].
func BasicAuth() Func {
	notFound := missing("BasicAuth()")
	return Named("BasicAuth()", func(r *Request) (string, error) {
		value, ok := single(r.Header["Authorization"])
		if !ok {
			return "", malformed("BasicAuth()", "several different Authorization headers")
		}
		scheme, _, _ := strings.Cut(value, " ")
		if !strings.EqualFold(scheme, "Basic") {
			return "", notFound
		}
		user, _, ok := r.BasicAuth()
		if !ok {
			return "", malformed("BasicAuth()", "the credentials cannot be decoded")
		}
		return found(user, notFound)
	})
}
