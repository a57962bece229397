package keyfuncs

import (
	"fmt"
	"net/http"
	"net/url"
)

// Form finds a field of an urlencoded form in the request's body, as browsers post it: a voter's choice. The query string does
// not count. The client chooses it freely.
//
// It reads the body, at most 10 MB of it, and leaves the parsed form for the handler ([net/http.Request.PostForm]); limit the
// body in front of it with [net/http.MaxBytesHandler] where that is too much. Other bodies are not read, neither JSON nor
// multipart forms, which could fill the disk: take what they say in a [Func] of your own, or in the handler.
//
// A field given several times with different values, and a body that can not be parsed, is [ErrMalformed]. Absent or empty
// is [ErrMissing].
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
			// A copy without the query, which is not the form's: it may be malformed and is none of our business.
			body := &http.Request{Method: r.Method, Header: r.Header, Body: r.Body, URL: &url.URL{}}
			if err := body.ParseForm(); err != nil {
				return "", malformed(call, "the form in the body can not be parsed")
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
