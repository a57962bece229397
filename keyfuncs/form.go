package keyfuncs

import (
	"fmt"
	"net/http"
	"net/url"
)

// Form finds a field of an urlencoded form in the request's body, as browsers post it, such as a voter's
// choice. The query string does not count. The client chooses the value freely.
//
// Form reads the body, at most 10 MB of it, and leaves the parsed form for the handler
// ([net/http.Request.PostForm]). Where that is too much, limit the body in front of it with
// [net/http.MaxBytesHandler]. It does not read other bodies, such as JSON, or multipart forms, which could
// fill the disk: read them in a [Func] of your own, or in the handler.
//
// A field with several different values, and a body that cannot be parsed, is [ErrMalformed]. An absent or
// empty field is [ErrMissing].
func Form(name string) Func {
	if name == "" {
		misuse("Form needs the name of a form field, such as Form(\"choice\")")
	}
	call := fmt.Sprintf("Form(%q)", name)
	notFound := missing(call)
	return func(r *Request) (string, error) {
		if r.PostForm == nil {
			if r.Body == nil {
				return "", notFound
			}
			// A copy without the query: a malformed query must not make a form malformed.
			body := &http.Request{Method: r.Method, Header: r.Header, Body: r.Body, URL: &url.URL{}}
			if err := body.ParseForm(); err != nil {
				return "", malformed(call, "the form in the body cannot be parsed")
			}
			r.PostForm = body.PostForm
		}
		value, ok := single(r.PostForm[name])
		if !ok {
			return "", malformed(call, "several different values")
		}
		return found(value, notFound)
	}
}
