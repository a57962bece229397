package keyfuncs

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// Form finds a field of an urlencoded form in the request's body, as browsers post it, such as a voter's
// choice. The query string does not count. The client chooses the value freely: as Who of a limit each
// made-up value is a client of its own, with a full limit and with keys in Redis. A limit of tries for each
// account that a login form names is fine beside one by [IP], which bounds how many names an address can make
// up.
//
// Form reads the body, at most 10 MB of it, and leaves both the parsed form ([net/http.Request.PostForm]) and
// the body for the handler. Where that is too much, limit the body in front of it with
// [net/http.MaxBytesHandler]. It does not read other bodies: for JSON there is [JSON], and multipart forms
// could fill the disk.
//
// Rules call it, as all functions of the body, when those in front of theirs have allowed the request: see
// [ReadsBody].
//
// A field with several different values, and a body that cannot be parsed, is [ErrMalformed]. A body beyond
// the limit of a MaxBytesHandler is [ErrTooLarge]. An absent or empty field is [ErrMissing].
func Form(name string) Func {
	if name == "" {
		misuse("Form needs the name of a form field, such as Form(\"choice\")")
	}
	call := fmt.Sprintf("Form(%q)", name)
	notFound := missingField(call, name)
	return described(about{name: call, body: true}, func(r *Request) (string, error) {
		if r.PostForm == nil {
			if r.Body == nil {
				return "", notFound
			}
			// A copy without the query: a malformed query must not make a form malformed.
			var read bytes.Buffer
			tee := io.NopCloser(io.TeeReader(r.Body, &read))
			body := &http.Request{Method: r.Method, Header: r.Header, Body: tee, URL: &url.URL{}}
			err := body.ParseForm()
			if read.Len() > 0 {
				restore(r, read.Bytes())
			}
			if err != nil {
				return "", unread(call, err, "the form in the body cannot be parsed")
			}
			r.PostForm = body.PostForm
		}
		value, ok := single(r.PostForm[name])
		if !ok {
			return "", malformed(call, "several different values")
		}
		return found(value, notFound)
	})
}
