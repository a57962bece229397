package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/accesslog"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// world is an engine without Redis whose clock is that of the log, with rules. It passes requests through the
// pipeline of the library.
type world struct {
	now    time.Time
	mounts []worldMount
	counts map[ruleName]*ruleCounts
	list   string // whose rules are asked
	// refused is the rule that has refused the last request, with the reason. The zero value: none.
	refused verdict
}

type ruleName struct{ list, guard string }

// verdict is what the rules have made of a request.
type verdict struct {
	ruleName
	reason core.Reason
}

// worldMount is a list of rules where the program has it.
type worldMount struct {
	list     string
	pattern  string
	pipeline *pipeline.Pipeline
	// router finds the parameters of the route; nil: all requests pass the rules.
	router *http.ServeMux
	routed *http.Request // what the router has found last
}

// newWorld makes a world of mounts. A sweep changes the limits of a guard.
func (p *replayPlan) newWorld(mounts []mountFlag, s *sweep) (*world, error) {
	w := &world{counts: map[ruleName]*ruleCounts{}}
	cfg, err := p.rules(s)
	if err != nil {
		return nil, err
	}
	set, err := cfg.Build(core.NewMemory(
		core.WithClock(func() time.Time { return w.now }), core.WithMemoryKeys(replayActors),
		core.WithObserver(w), core.WithDeadline(time.Minute), core.WithLogger(slog.New(slog.DiscardHandler))))
	if err != nil {
		return nil, err
	}
	for _, list := range p.lists {
		for _, rule := range list.rules {
			w.counts[ruleName{list.name, rule.guard}] = newRuleCounts(s == nil)
		}
	}
	w.mounts = make([]worldMount, len(mounts))
	for i, m := range mounts {
		w.mounts[i] = worldMount{list: m.list, pattern: m.pattern, pipeline: set.Pipeline(m.list)}
		if m.pattern == "" {
			continue
		}
		mount := &w.mounts[i]
		mount.router = new(http.ServeMux)
		catch := func(_ http.ResponseWriter, r *http.Request) { mount.routed = r }
		if err := caughtAny(func() { mount.router.HandleFunc(m.pattern, catch) }); err != nil {
			return nil, usagef("-mount: %w", err)
		}
	}
	return w, nil
}

// Observe implements core.Observer: it counts what each rule decides.
func (w *world) Observe(_ context.Context, e core.Event) {
	if e.Op != "check" && e.Op != "refuse" || e.Err != nil {
		return
	}
	if c := w.counts[ruleName{w.list, e.Guard}]; c != nil {
		c.decided(&e.Decision)
	}
}

// serve passes a request through the rules at its time.
func (w *world) serve(r *http.Request, at time.Time, status int) {
	w.now, w.refused = at, verdict{}
	w.pass(r, status, 0)
}

// pass passes a request through the mounts from one on, and returns the status of the answer.
func (w *world) pass(r *http.Request, status, from int) int {
	for i := from; i < len(w.mounts); i++ {
		m := &w.mounts[i]
		inner := r
		if m.router != nil {
			if inner = m.route(r); inner == nil {
				continue
			}
		}
		w.list = m.list
		passage, refusal := m.pipeline.Enter(&keyfuncs.Request{Request: inner})
		if refusal != nil {
			w.refused = verdict{ruleName{m.list, refusal.Decision.Guard}, refusal.Reason}
			return refusal.Status
		}
		answered := w.pass(inner.WithContext(passage.Context()), status, i+1)
		if passage.Watches() {
			passage.Watch(&noAnswer{header: http.Header{}}).WriteHeader(answered)
		}
		passage.Leave(answered)
		return answered
	}
	return status
}

// route returns the request with what the router knows, or nil if it is of another route.
func (m *worldMount) route(r *http.Request) *http.Request {
	m.routed = nil
	m.router.ServeHTTP(&noAnswer{header: http.Header{}}, r)
	return m.routed
}

// noAnswer is a response that nobody reads.
type noAnswer struct{ header http.Header }

func (w *noAnswer) Header() http.Header         { return w.header }
func (w *noAnswer) Write(p []byte) (int, error) { return len(p), nil }
func (w *noAnswer) WriteHeader(int)             {}

// entryKey is the key of the log's request in the context of a request.
type entryKey struct{}

// requests makes requests of those of a log.
type requests struct {
	flags   *replayFlags
	headers map[string][]string // by the field of the log
	context bool                // key functions look for fields in the context
}

func newRequests(f *replayFlags) *requests {
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
		return costs(units)
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
