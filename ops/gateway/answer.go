package gateway

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// answer is what the rules answer to the client.
type answer struct {
	status int
	header http.Header
	body   bytes.Buffer

	led    bool // to the rules of a route
	passed bool // all rules
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK {
		a.status = status
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

// malformed is the answer to a request whose path can be read in two ways.
func malformed(err error) *answer {
	a := &answer{status: http.StatusBadRequest, header: http.Header{}}
	a.header.Set("Content-Type", "text/plain; charset=utf-8")
	a.header.Set("Cache-Control", "no-store")
	fmt.Fprintf(&a.body, "Bad Request: %v.\n", err)
	return a
}

// refuse tells the proxy the answer to a request that is refused.
func (g *gateway) refuse(w http.ResponseWriter, a *answer) {
	h := w.Header()
	copyFields(h, a.header)
	switch {
	case g.dialect.encloses:
		enclosed, err := enclose(a)
		if err != nil {
			g.logger().Error("gatehouse: gateway: a refusal is shown without its body", "err", err)
		}
		h.Set(refusalField, enclosed)
		h.Set(statusField, strconv.Itoa(a.status))
		h.Del("Content-Length")
		w.WriteHeader(http.StatusForbidden)
		return
	case g.dialect.reads:
		h.Set(statusField, strconv.Itoa(a.status))
	case a.status < http.StatusMultipleChoices: // such as the page of a waiting room: it would let pass
		a.status = http.StatusServiceUnavailable
	}
	if g.dialect.failed && a.status >= http.StatusInternalServerError {
		a.status = http.StatusTooManyRequests
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes()) // the proxy may have gone
}

// copyFields copies the fields of an answer. Lists become one field: nginx before 1.23 passes on the first
// one.
func copyFields(to, from http.Header) {
	for name, values := range from {
		if len(values) > 1 && (name == "Ratelimit" || name == "Ratelimit-Policy") {
			values = []string{strings.Join(values, ", ")}
		}
		to[name] = values
	}
}

// enclosed is an answer in a field.
type enclosed struct {
	Status int         `json:"s"`
	Header http.Header `json:"h"`
	Body   []byte      `json:"b"`
}

// longestField is the longest field in which an answer is enclosed. nginx reads the fields of an answer into
// one buffer, of proxy_buffer_size.
const longestField = 24 << 10

// enclose encloses an answer in a field.
func enclose(a *answer) (string, error) {
	text, err := json.Marshal(enclosed{a.status, a.header, a.body.Bytes()})
	if err == nil && base64.RawURLEncoding.EncodedLen(len(text)) > longestField {
		err = fmt.Errorf("a body of %d bytes is too long for a field", a.body.Len())
	}
	if err != nil {
		text, _ = json.Marshal(enclosed{Status: a.status}) // a number can be written
	}
	return base64.RawURLEncoding.EncodeToString(text), err
}

// disclose answers with the answer that nginx was told.
func disclose(w http.ResponseWriter, r *http.Request) {
	a, err := disclosed(r.Header.Get(refusalField))
	if err != nil { // the 403 is not one of ours
		http.Error(w, http.StatusText(http.StatusForbidden), http.StatusForbidden)
		return
	}
	copyFields(w.Header(), a.Header)
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body) // the proxy may have gone
}

func disclosed(field string) (a enclosed, err error) {
	text, err := base64.RawURLEncoding.DecodeString(field)
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	if err == nil && (a.Status < http.StatusOK || a.Status > 599) {
		err = errors.New("no status")
	}
	return a, err
}
