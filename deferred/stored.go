package deferred

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// stored is a request in the queue: the payload of its task is this as one line of JSON, and the body.
type stored struct {
	Method    string              `json:"method"`
	Target    string              `json:"target"` // path and query, as the client wrote them
	Host      string              `json:"host"`
	Peer      string              `json:"peer"` // the address of the peer, for rules by address
	Header    map[string][]string `json:"header,omitempty"`
	Principal string              `json:"principal"`
	Print     string              `json:"print"` // what tells it from others with the same ID
	Came      int64               `json:"came"`  // when it came, in seconds since 1970

	body []byte
}

// finished is what is left of a request that has run: the result of its task is this as one line of JSON, and
// the body of the answer.
type finished struct {
	Print   string        `json:"print"`
	Outcome *core.Outcome `json:"outcome"`
}

// errPayload means that a task of the queue holds no request.
var errPayload = errors.New("deferred: the task holds no request: use the queue for nothing else")

// join returns a value as a line of JSON, followed by a body.
func join(value any, body []byte) ([]byte, error) {
	line, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("deferred: encode: %w", err)
	}
	return append(append(line, '\n'), body...), nil
}

// split is the inverse of join. It returns the body.
func split(text []byte, value any) (body []byte, err error) {
	line, body, ok := bytes.Cut(text, []byte("\n"))
	if !ok {
		return nil, errPayload
	}
	if err := json.Unmarshal(line, value); err != nil {
		return nil, fmt.Errorf("%w: %w", errPayload, err)
	}
	return body, nil
}

// encode returns a request as it is stored, or nil if it cannot be.
func (d *Requests) encode(r *keyfuncs.Request, principal string) ([]byte, error) {
	body, ok := readBody(r.Request, d.o.MaxBody)
	if !ok {
		return nil, nil
	}
	asked, err := d.fingerprint(r)
	if err != nil {
		return nil, nil //nolint:nilerr // the body cannot be read: the request is refused, as without Defer
	}
	s := stored{
		Method: r.Method, Target: target(r.Request), Host: r.Host, Peer: r.RemoteAddr,
		Header: map[string][]string{}, Principal: principal, Print: digest(asked), Came: d.now().Unix(),
	}
	for _, name := range d.fields {
		if values := r.Header.Values(name); len(values) > 0 {
			s.Header[name] = values
		}
	}
	if !s.isText() {
		return nil, nil
	}
	return join(s, body)
}

// target returns what the client asked for, before anything stripped a prefix from the path.
func target(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") {
		return r.RequestURI
	}
	return r.URL.RequestURI()
}

// isText reports whether JSON keeps all of it: it would change what is not UTF-8.
func (s *stored) isText() bool {
	for _, values := range s.Header {
		for _, value := range values {
			if !utf8.ValidString(value) {
				return false
			}
		}
	}
	return utf8.ValidString(s.Method + s.Target + s.Host + s.Peer + s.Principal)
}

// decode returns the request of a task.
func decode(payload []byte) (s stored, err error) {
	if s.body, err = split(payload, &s); err == nil && (s.Method == "" || s.Principal == "") {
		err = errPayload
	}
	return s, err
}

// request makes the request anew.
func (s *stored) request(ctx context.Context) (*http.Request, error) {
	u, err := url.ParseRequestURI(s.Target)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errPayload, err)
	}
	r, err := http.NewRequestWithContext(ctx, s.Method, u.String(), bytes.NewReader(s.body))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errPayload, err)
	}
	r.URL, r.RequestURI, r.Host, r.RemoteAddr = u, s.Target, s.Host, s.Peer
	for name, values := range s.Header {
		r.Header[name] = values
	}
	if len(s.body) == 0 {
		r.Body = http.NoBody
	}
	return r, nil
}

// printOf returns what tells the request of a task from others with the same ID.
func printOf(status delay.Status) (string, error) {
	if status.State == delay.Done {
		var f finished
		_, err := split(status.Result, &f)
		return f.Print, err
	}
	s, err := decode(status.Payload)
	return s.Print, err
}
