package fibermw

import (
	"bytes"
	"iter"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
)

// convert makes the request that key functions see. All of its text is copied: fasthttp reuses its buffers
// for the next request, but a key stays in the counts of the process.
func convert(c fiber.Ctx) *http.Request {
	from := c.Request()
	target := string(from.RequestURI())
	r := bare(c)
	r.Method, r.RequestURI, r.URL = methodOf(from), target, urlOf(target)
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	if !from.Header.IsHTTP11() {
		r.Proto, r.ProtoMinor = "HTTP/1.0", 0
	}
	r.Header = headerOf(from.Header.All(), len(from.Header.RawHeaders()))
	delete(r.Header, "Host") // as net/http has it
	r.Host = string(from.URI().Host())
	if n := from.Header.ContentLength(); n >= -1 { // fasthttp may say -2 where there is no body
		r.ContentLength = int64(n)
	}
	r.Body = &body{of: from, most: c.App().Config().BodyLimit}
	return r
}

// bare makes a request of the client's address alone. Its header is nil.
func bare(c fiber.Ctx) *http.Request {
	r := (&http.Request{}).WithContext(c.Context())
	r.RemoteAddr, r.TLS = textOf(c.RequestCtx().RemoteAddr()), c.RequestCtx().TLSConnectionState()
	return r
}

// textOf is String of an address, with one allocation where it is one of TCP.
func textOf(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || len(tcp.IP) == 0 {
		return addr.String()
	}
	var room [64]byte
	of := tcp.AddrPort()
	return string(netip.AddrPortFrom(of.Addr().Unmap(), of.Port()).AppendTo(room[:0]))
}

// byAddress makes the request for a limit by the peer's address. Only fields of proxies and of pages of other
// origins make a difference to it, and few requests have them: it converts no other.
func byAddress(c fiber.Ctx) *http.Request {
	header := &c.Request().Header
	for _, name := range seen {
		if len(header.Peek(name)) > 0 {
			return convert(c)
		}
	}
	r := bare(c)
	r.Method, r.URL = methodOf(c.Request()), &url.URL{}
	return r
}

// seen are those fields: keyfuncs.IP warns of proxies that it has not been told of.
var seen = []string{
	"Origin", "X-Forwarded-For", "Forwarded", "X-Real-Ip", "Cf-Connecting-Ip", "True-Client-Ip",
	"X-Client-Ip", "Fly-Client-Ip", "Fastly-Client-Ip", "X-Azure-Clientip", "X-Azure-Socketip",
}

// methodOf copies no method of the standard.
func methodOf(r *fasthttp.Request) string {
	method := r.Header.Method()
	for _, known := range fiber.DefaultMethods {
		if string(method) == known {
			return known
		}
	}
	return string(method)
}

// urlOf reads the request's target. fasthttp takes some that net/url does not: their path is left as it came.
func urlOf(target string) *url.URL {
	path, query, found := strings.Cut(target, "?")
	if isSimple(path) && found == (query != "") {
		return &url.URL{Path: path, RawQuery: query} // as ParseRequestURI has it, in less time
	}
	if u, err := url.ParseRequestURI(target); err == nil {
		return u
	}
	return &url.URL{Path: path, RawQuery: query}
}

// isSimple reports whether a path has nothing that needs an escape, or that is one.
func isSimple(path string) bool {
	for i := range len(path) {
		c := path[i]
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '-' || c > '9') && c != '_' {
			return false
		}
	}
	return strings.HasPrefix(path, "/")
}

// sizes are those of a field.
type sizes struct{ name, value int }

// headerOf copies the fields of a header, whose text has about this size.
func headerOf(fields iter.Seq2[[]byte, []byte], size int) http.Header {
	var all strings.Builder // one allocation for all names and values
	all.Grow(size)
	var room [24]sizes
	each := room[:0]
	for name, value := range fields {
		all.Write(name)
		all.Write(value)
		each = append(each, sizes{len(name), len(value)})
	}
	text, values, h := all.String(), make([]string, 0, len(each)), make(http.Header, len(each))
	for _, of := range each {
		field := http.CanonicalHeaderKey(text[:of.name]) // no copy: fasthttp writes names so, too
		values = append(values, text[of.name:of.name+of.value])
		text = text[of.name+of.value:]
		if last := len(values); h[field] == nil {
			h[field] = values[last-1 : last : last] // an append makes a copy
		} else {
			h[field] = append(h[field], values[last-1])
		}
	}
	return h
}

// body is the body of a request. It is looked at only when a key function reads it.
type body struct {
	of   *fasthttp.Request
	most int // of a body that the application streams
	from *bytes.Reader
}

func (b *body) Close() error { return nil }

func (b *body) Read(p []byte) (int, error) {
	if b.from == nil {
		if n := b.of.Header.ContentLength(); b.of.IsBodyStream() && (n < 0 || n > b.most) {
			return 0, &http.MaxBytesError{Limit: int64(b.most)} // to read it is to keep it for the handler
		}
		b.from = bytes.NewReader(b.of.Body())
	}
	return b.from.Read(p)
}

// facts is what fiber knows about a request.
type facts struct{ c fiber.Ctx }

// Route returns the pattern of the route. In Use, that of the middleware is none.
func (f facts) Route() string {
	if f.Unrouted() {
		return ""
	}
	return f.c.Route().Path
}

// Unrouted reports whether the router has not got to a route yet.
func (f facts) Unrouted() bool { return !f.c.Matched() }

// Param undoes escapes in the path, as fiber does only with its option UnescapePath.
func (f facts) Param(name string) (string, bool) {
	if name == "*" || name == "+" {
		name += "1" // as fiber counts them
	}
	if !slices.Contains(f.c.Route().Params, name) {
		return "", false
	}
	value := strings.Clone(f.c.Params(name))
	if f.c.App().Config().UnescapePath {
		return value, true
	}
	if plain, err := url.PathUnescape(value); err == nil {
		value = plain
	}
	return value, true
}

// Value copies a text, since a login may have stored one of fiber's that lives as long as the request.
func (f facts) Value(name string) (any, bool) {
	v := f.c.Locals(name)
	if text, ok := v.(string); ok {
		v = strings.Clone(text)
	}
	return v, v != nil
}
