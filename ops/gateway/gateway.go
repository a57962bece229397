package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/gatehouse-go/gatehouse/internal/plainhost"
	"github.com/gatehouse-go/gatehouse/internal/warn"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/ops/config"
)

// Options are the options of [Handler].
type Options struct {
	// From is the proxy. Required.
	From From
	// Proxies are the addresses that may ask. None: the loopback addresses. A peer on a Unix socket may always
	// ask: the file's permissions say who that is.
	Proxies []netip.Prefix
	// Users are the fields in which the proxy sends what its login knows, by the name that the key function user
	// has: {"uid": "X-User"}. The proxy must set them, so that a client's own do not count.
	Users map[string]string
	// EncodedSlashes lets paths with %2F pass. A pattern takes such a slash for a part of its segment, as
	// http.ServeMux does. Set it only if the proxy and the application do so, too.
	EncodedSlashes bool
	// PathParameters lets paths with a semicolon pass, which is a character as any other then. Set it only if
	// the application takes it for one.
	PathParameters bool
	// FoldPath makes paths lower-case before they are judged: for applications that route without regard to
	// case, as Express and ASP.NET do. Write the patterns in lower case.
	FoldPath bool
}

// Handler returns a handler for the requests of a proxy, by the rules and routes of a file. It follows the
// file. It panics on mistakes in the options, and if live was made without [config.ForGateway]. It is safe
// for concurrent use.
//
// The rules see the client's request as the proxy does: the peer is the address that the proxy has added to
// X-Forwarded-For. So keyfuncs.IP needs to trust no proxy but those in front of this one.
//
// At [CheckPath] it answers whether a request may pass: 204, or 200 to Envoy. A refusal is the answer that
// clients get, with its status, fields and body. nginx shows no such answer: it is told 403, with the status
// in the field Gatehouse-Status and all of it in Gatehouse-Refusal, and fetches it at [RefusalPath]. Envoy
// takes 5xx for a failure of the gateway, so it is told 429 in place of 503. At /healthz it answers 200.
//
// A request that is not from the proxy is answered with 403, and one that lacks what the proxy has to send
// with 500: the proxy's configuration is wrong then. Both are logged once a minute. A path that can be read
// in two ways is answered with 400. If an option lets such paths pass, it is logged once a minute.
func Handler(live *config.Live, o Options) http.Handler {
	if o.From == 0 || int(o.From) >= len(dialects) {
		panic("gateway: Options.From is missing: name the proxy, such as gateway.Nginx")
	}
	if live == nil || !live.Set().Config().ForGateway() {
		panic("gateway: the file was not checked for a gateway: pass config.ForGateway() to config.Watch")
	}
	if o.Proxies == nil {
		o.Proxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	}
	for name, field := range o.Users {
		if name == "" || field == "" {
			panic(fmt.Sprintf("gateway: Options.Users has %q for %q: name the field in which the proxy sends it",
				field, name))
		}
	}
	g := &gateway{live: live, options: o, dialect: dialects[o.From]}
	g.routes()
	return g
}

// gateway is the handler.
type gateway struct {
	live    *config.Live
	options Options
	dialect dialect

	mu     sync.Mutex // held while routes are made
	routed atomic.Pointer[routes]
	warned warn.Sample[struct{}] // of a wrong configuration
	told   warn.Sample[struct{}] // of paths that an option would let pass: clients choose when
}

// ServeHTTP implements http.Handler.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 { // a body that nobody reads, or a Content-Length of the client without one
		w.Header().Set("Connection", "close")
	}
	switch path := r.URL.Path; {
	case !g.mayAsk(r):
		g.warn(r, "a peer that is not named may not ask", "peer", r.RemoteAddr)
		http.Error(w, "This is not for you.", http.StatusForbidden)
	case path == "/healthz":
		w.WriteHeader(http.StatusOK)
	case path == RefusalPath && g.dialect.encloses:
		disclose(w, r)
	case path == CheckPath, g.dialect.target == "" && strings.HasPrefix(path, CheckPath+"/"):
		g.check(w, r)
	default:
		g.warn(r, "the proxy asks at a path that is not "+CheckPath, "path", path)
		http.Error(w, "The proxy asks at a path that is not "+CheckPath+".", http.StatusInternalServerError)
	}
}

// mayAsk reports whether the peer is the proxy.
func (g *gateway) mayAsk(r *http.Request) bool {
	if at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && at.Network() == "unix" {
		return true
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	addr := peer.Addr().Unmap().WithZone("")
	return slices.ContainsFunc(g.options.Proxies, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// warn logs, once a minute.
func (g *gateway) warn(r *http.Request, what string, attributes ...any) {
	if _, due := g.warned.Due(struct{}{}); due {
		g.logger().WarnContext(r.Context(), "gatehouse: gateway: "+what, attributes...)
	}
}

func (g *gateway) logger() *slog.Logger { return g.live.Engine().Logger() }

// check passes the request of a client through the rules of its route.
func (g *gateway) check(w http.ResponseWriter, r *http.Request) {
	a := &answer{header: http.Header{}}
	asked, lacks := g.asked(r, a)
	if lacks != "" {
		g.warn(r, "the proxy does not send what it has to: compare its configuration with the guide", "lacks",
			lacks)
		http.Error(w, "The proxy does not send "+lacks+".", http.StatusInternalServerError)
		return
	}
	u, err := clean(asked.RequestURI, &g.options)
	if err != nil {
		if path := (*ambiguous)(nil); errors.As(err, &path) && path.option != "" {
			if _, due := g.told.Due(struct{}{}); due {
				g.logger().InfoContext(r.Context(), "gatehouse: gateway: "+err.Error()+", so it gets 400; an option "+
					"lets such paths pass", "option", path.option)
			}
		}
		g.refuse(w, malformed(err))
		return
	}
	asked.URL = u
	g.routes().serve(a, asked)
	if !a.passed {
		g.refuse(w, a)
		return
	}
	copyFields(w.Header(), a.header)
	w.Header().Set("Cache-Control", "no-store") // for the proxy's own cache
	w.WriteHeader(g.dialect.allowed)
}

// answerKey is the key of the answer to a request.
type answerKey struct{}

// answerOf returns the answer to a request, which a rule may have wrapped.
func answerOf(r *http.Request) *answer { return r.Context().Value(answerKey{}).(*answer) }

// pass is the handler behind all rules.
func pass(w http.ResponseWriter, r *http.Request) {
	answerOf(r).passed = true
	w.WriteHeader(http.StatusNoContent)
}

// asked makes the request that the proxy asks about, all but its URL. lacks names what the proxy has not
// sent.
func (g *gateway) asked(r *http.Request, a *answer) (asked *http.Request, lacks string) {
	d, ctx := g.dialect, context.WithValue(r.Context(), answerKey{}, a)
	for name, field := range g.options.Users {
		if values := r.Header.Values(field); len(values) == 1 && values[0] != "" {
			ctx = keyfuncs.WithValue(ctx, name, values[0])
		}
	}
	asked = r.WithContext(ctx)
	asked.Body, asked.ContentLength, asked.TransferEncoding = http.NoBody, 0, nil
	asked.Header = make(http.Header, len(r.Header))
	for name, values := range r.Header {
		if name != d.method && name != d.target && !strings.HasPrefix(name, "Gatehouse-") {
			asked.Header[name] = values
		}
	}
	field := func(name string, own string) string {
		if name == "" {
			return own
		}
		values := r.Header[name]
		if len(values) != 1 || values[0] == "" {
			lacks = "one " + name
			return ""
		}
		return values[0]
	}
	asked.Host = plainhost.Of(field(d.host, r.Host))
	asked.Method = field(d.method, r.Method)
	asked.RequestURI = field(d.target, strings.TrimPrefix(r.RequestURI, CheckPath))
	if lacks == "" && !isToken(asked.Method) {
		lacks = "a method"
	}
	setPeer(asked)
	return asked, lacks
}

// setPeer takes the address that the proxy has added to X-Forwarded-For, on the right, for the peer, which it
// is the proxy's. So key functions see what they would see in the proxy's place. Without such an address, the
// peer is the proxy.
func setPeer(r *http.Request) {
	const field = "X-Forwarded-For"
	lines := r.Header[field]
	if len(lines) == 0 {
		return
	}
	before, last := lines[:len(lines)-1], lines[len(lines)-1]
	comma := strings.LastIndexByte(last, ',')
	addr, err := netip.ParseAddr(strings.Trim(last[comma+1:], " \t"))
	if err != nil {
		return
	}
	r.RemoteAddr = netip.AddrPortFrom(addr, 0).String()
	left := append(make([]string, 0, len(lines)), before...) // never nil: a proxy has been there
	if comma >= 0 {
		left = append(left, last[:comma])
	}
	r.Header[field] = left
}

// isToken reports whether a method is written as one (RFC 9110, section 5.6.2), so far as it matters here.
func isToken(method string) bool {
	return method != "" && len(method) <= 100 && !strings.ContainsFunc(method, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	})
}
