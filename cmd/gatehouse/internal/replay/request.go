package replay

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/rules"
	"github.com/gatehouse-go/gatehouse/internal/accesslog"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/ops/config"
)

// options returns the options with which the file is read.
func (f *flags) options() (all []config.Option) {
	for name, field := range f.keys {
		all = append(all, config.WithKey(name, fieldOf(field)))
	}
	for name, source := range f.costs {
		all = append(all, config.WithCost(name, costOf(source)))
	}
	return all
}

// fieldOf returns the key function of what a flag says is in a field of the log.
func fieldOf(field string) keyfuncs.Func {
	return func(r *keyfuncs.Request) (string, error) {
		if e, ok := r.Context().Value(entryKey{}).(*accesslog.Entry); ok && field != "" {
			if text := valueOf(e, field); text != "" {
				return text, nil
			}
		}
		return "", keyfuncs.ErrMissing
	}
}

// valueOf returns a field of a request that flags name.
func valueOf(e *accesslog.Entry, field string) string {
	for i := range e.Fields {
		if e.Fields[i].Name == field {
			return e.Fields[i].Value
		}
	}
	return ""
}

// entryKey is the key of the log's request in the context of a request.
type entryKey struct{}

// requests makes requests of those of a log.
type requests struct {
	flags   *flags
	headers map[string][]string // by the field of the log
	context bool                // key functions look for fields in the context
}

func newRequests(f *flags) *requests {
	q := &requests{flags: f, headers: map[string][]string{}}
	for header, field := range f.headers {
		q.headers[field] = append(q.headers[field], textproto.CanonicalMIMEHeaderKey(header))
	}
	q.context = len(f.keys) > 0 || len(f.costs) > 0 || len(f.users) > 0
	return q
}

// request makes a request as the server of the program has read it.
func (q *requests) request(ctx context.Context, e *accesslog.Entry) (*http.Request, error) {
	u, err := url.ParseRequestURI(e.URI)
	if err != nil {
		return nil, fmt.Errorf("the target of the request is %.40q", e.URI)
	}
	r := &http.Request{Method: e.Method, URL: u, RequestURI: e.URI, Host: e.Host, RemoteAddr: e.Remote,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody}
	if u.Host != "" { // load balancers log the whole URL
		if r.Host == "" {
			r.Host = u.Host
		}
		u.Scheme, u.Host, u.User = "", "", nil
	}
	if e.Remote != "@" && !hasPort(e.Remote) {
		r.RemoteAddr = net.JoinHostPort(strings.Trim(e.Remote, "[]"), "0")
	}
	for i := range e.Fields {
		f := &e.Fields[i]
		for _, name := range q.headersOf(f.Name) {
			r.Header[name] = append(r.Header[name], f.Value)
		}
	}
	if e.User != "" && r.Header["Authorization"] == nil {
		r.SetBasicAuth(e.User, "")
	}
	if q.context {
		ctx = context.WithValue(ctx, entryKey{}, e)
		for name, field := range q.flags.users {
			if user := valueOf(e, field); user != "" {
				ctx = keyfuncs.WithValue(ctx, name, user)
			}
		}
	}
	return r.WithContext(ctx), nil
}

func hasPort(address string) bool {
	colon := strings.LastIndexByte(address, ':')
	return colon > 0 && (address[colon-1] == ']' || strings.IndexByte(address, ':') == colon)
}

// maxHeaders is how many names of fields are remembered.
const maxHeaders = 1000

// headersOf returns the header fields that a field of the log holds.
func (q *requests) headersOf(field string) []string {
	names, known := q.headers[field]
	if !known {
		if name := accesslog.HeaderOf(field); name != "" {
			names = []string{textproto.CanonicalMIMEHeaderKey(name)}
		}
		if len(q.headers) < maxHeaders {
			q.headers[field] = names
		}
	}
	return names
}

// costOf returns the cost function of what a flag says: units, or a field of the log.
func costOf(source string) func(*keyfuncs.Request) (int64, error) {
	if units, err := strconv.ParseInt(source, 10, 64); err == nil {
		return rules.Cost(units)
	}
	find := fieldOf(source)
	return func(r *keyfuncs.Request) (int64, error) {
		text, err := find(r)
		if err != nil {
			return 0, err
		}
		return strconv.ParseInt(text, 10, 64)
	}
}
