package deferred

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// stored is a request in the queue: the payload of its task is this as one line of JSON and the body, sealed.
// It has all by which the request is judged, so that it is judged alike when it runs.
type stored struct {
	Method    string      `json:"method"`
	Target    string      `json:"target"` // path and query, as the client wrote them
	Host      string      `json:"host"`
	Peer      string      `json:"peer"`          // the address of the peer, for rules by address
	TLS       *secured    `json:"tls,omitempty"` // nil: the request came without TLS
	Header    http.Header `json:"header,omitempty"`
	Principal string      `json:"principal"`
	Depth     int         `json:"depth"` // see pipeline.WithRerun
	Print     string      `json:"print"` // distinguishes it from others with the same ID
	Came      int64       `json:"came"`  // when it came, in seconds since 1970

	body []byte
}

// secured is what is stored of a connection with TLS. Certificates of clients are credentials.
type secured struct {
	Version uint16 `json:"version"`
	Server  string `json:"server"` // the name that the client asked for
}

// finished is what is left of a request that has run: the result of its task is this as one line of JSON, and
// the body of the answer, sealed.
type finished struct {
	Print   string        `json:"print"`
	Outcome *core.Outcome `json:"outcome"`
}

// maxHeader is the longest line of JSON that is stored, in bytes: common servers take no longer header.
const maxHeader = 8 << 10

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
func (d *Requests) encode(r *keyfuncs.Request, op operation, depth int) ([]byte, error) {
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
		Header: maps.Clone(r.Header), Principal: op.principal, Depth: depth, Print: digest(asked),
		Came: d.now().Unix(),
	}
	maps.DeleteFunc(s.Header, func(name string, _ []string) bool { return d.leavesOut(name) })
	if r.TLS != nil {
		s.TLS = &secured{r.TLS.Version, r.TLS.ServerName}
	}
	if !s.isText() {
		return nil, nil
	}
	text, err := join(s, body)
	if err != nil || len(text)-len(body) > maxHeader {
		return nil, err
	}
	if text = d.seal(sealRequest, op.task(), text); len(text) > d.queue.MaxPayload() {
		return nil, nil
	}
	return text, nil
}

// leavesOut reports whether a header field is not stored. Accept-Encoding is not, since the answer is kept
// for whoever asks for it.
func (d *Requests) leavesOut(name string) bool {
	lower := strings.ToLower(name)
	return lower == "accept-encoding" || isCredential(lower) ||
		slices.ContainsFunc(d.o.Credentials, func(field string) bool { return strings.EqualFold(field, name) })
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
	all := []string{s.Method, s.Target, s.Host, s.Peer, s.Principal}
	if s.TLS != nil {
		all = append(all, s.TLS.Server)
	}
	for name, values := range s.Header {
		all = append(append(all, name), values...)
	}
	return !slices.ContainsFunc(all, func(text string) bool { return !utf8.ValidString(text) })
}

// decode returns the request of a task.
func (d *Requests) decode(task string, payload []byte) (s stored, err error) {
	text, err := d.unseal(sealRequest, task, payload)
	if err != nil {
		return s, err
	}
	if s.body, err = split(text, &s); err == nil && (s.Method == "" || s.Principal == "") {
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
	maps.Copy(r.Header, s.Header)
	if s.TLS != nil {
		r.TLS = &tls.ConnectionState{HandshakeComplete: true, Version: s.TLS.Version, ServerName: s.TLS.Server}
	}
	if len(s.body) == 0 {
		r.Body = http.NoBody
	}
	return r, nil
}

// printOf returns what tells the request of a task from others with the same ID.
func (d *Requests) printOf(task string, status delay.Status) (string, error) {
	if status.State == delay.Done {
		f, err := d.finished(task, status.Result)
		return f.Print, err
	}
	s, err := d.decode(task, status.Payload)
	return s.Print, err
}

// finished returns what is left of a request that has run.
func (d *Requests) finished(task string, result []byte) (f finished, err error) {
	text, err := d.unseal(sealAnswer, task, result)
	if err != nil {
		return f, err
	}
	body, err := split(text, &f)
	if err != nil {
		return f, err
	}
	if f.Outcome == nil {
		return f, errPayload
	}
	f.Outcome.Body = body
	return f, nil
}
