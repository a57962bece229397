package keyfuncs

import (
	"errors"
	"fmt"
	"net/http"
)

// formMemory is how much of a multipart form is kept in memory, net/http's own default.
const formMemory = 32 << 20

// Form finds a field of the form in the request's body, urlencoded or multipart: a voter's choice. The query string does
// not count. The client chooses it freely.
//
// It reads the body, as [net/http.Request.ParseMultipartForm] does, and leaves the parsed form for the handler. Limit the body
// in front of it with [net/http.MaxBytesHandler] where 10 MB are too much. A body in another format, such as JSON, is
// not read: take what it says in a [Func] of your own, or in the handler.
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
		if r.Body == nil && r.PostForm == nil {
			return "", notFound
		}
		err := r.ParseForm() // ParseMultipartForm alone keeps its error to itself
		if err == nil {
			err = r.ParseMultipartForm(formMemory)
		}
		if err != nil && !errors.Is(err, http.ErrNotMultipart) {
			return "", malformed(call, "the form in the body can not be parsed")
		}
		value, ok := single(r.PostForm[name])
		if !ok {
			return "", malformed(call, "several different values")
		}
		return found(value, notFound)
	}
}
