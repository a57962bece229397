package fibermw

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
)

// Handler returns the application as an http.Handler, for deferred.Requests.Work and for tests. In contrast
// to fiber's own adaptor.FiberApp, c.Context is the request's context, and repeated header fields are kept. A
// panic of a handler gets to the caller. Hijacked connections are not served.
func Handler(app *fiber.App) http.Handler {
	serve := app.Handler() // ends the set-up of the application
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := new(fasthttp.RequestCtx) // not pooled, because a handler may outlast fiber's timeout
		ctx.Init2(connOf(r), nil, true)
		if err := fill(&ctx.Request, r, app.Config().BodyLimit); err != nil {
			http.Error(w, http.StatusText(http.StatusRequestEntityTooLarge), http.StatusRequestEntityTooLarge)
			return
		}
		if slices.Contains(app.Config().RequestMethods, r.Method) {
			run(app, ctx, r)
		} else {
			serve(ctx) // answers that
		}
		response := &ctx.Response
		if late := ctx.LastTimeoutErrorResponse(); late != nil {
			response = late
		}
		give(w, r, response)
	})
}

// run is fiber's own handler with the request's context.
func run(app *fiber.App, ctx *fasthttp.RequestCtx, r *http.Request) {
	c := app.AcquireCtx(ctx)
	defer app.ReleaseCtx(c)
	c.SetContext(r.Context())
	if err := c.RestartRouting(); err != nil && app.ErrorHandler(c, err) != nil {
		_ = c.SendStatus(http.StatusInternalServerError) // as fiber does; it returns no error
	}
}

// fill makes a request of fasthttp. It fails if the body is too large or breaks off.
func fill(to *fasthttp.Request, r *http.Request, most int) error {
	to.Header.SetMethod(r.Method)
	to.SetRequestURI(r.URL.RequestURI())
	for name, values := range r.Header {
		for _, value := range values {
			to.Header.Add(name, value)
		}
	}
	to.SetHost(r.Host)
	to.Header.SetHost(r.Host)
	if r.Body == nil {
		return nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, int64(most)))
	to.SetBodyRaw(body)
	to.Header.SetContentLength(len(body))
	return err
}

// give sends a response of fasthttp.
func give(w http.ResponseWriter, r *http.Request, response *fasthttp.Response) {
	for name, value := range response.Header.All() {
		w.Header().Add(string(name), string(value))
	}
	w.WriteHeader(response.StatusCode())
	defer func() { _ = response.CloseBodyStream() }() // read to its end, or the client has gone
	if r.Method == http.MethodHead {
		return
	}
	if stream := response.BodyStream(); stream != nil {
		_, _ = io.Copy(w, stream)
		return
	}
	_, _ = w.Write(response.Body())
}

// conn is the connection of a request as far as fasthttp asks for it.
type conn struct {
	net.Conn
	addr net.Addr
}

func (c conn) RemoteAddr() net.Addr { return c.addr }
func (c conn) LocalAddr() net.Addr  { return &net.TCPAddr{} }

// secure is a conn with TLS.
type secure struct {
	conn
	state *tls.ConnectionState
}

func (s secure) Handshake() error                     { return nil }
func (s secure) ConnectionState() tls.ConnectionState { return *s.state }

// peer is an address as net/http has it. fiber.Ctx.IP reads only a net.TCPAddr.
type peer string

func (p peer) Network() string { return "tcp" }
func (p peer) String() string  { return string(p) }

func connOf(r *http.Request) net.Conn {
	c := conn{addr: peer(r.RemoteAddr)}
	if addr, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		if tcp := net.TCPAddrFromAddrPort(addr); tcp.String() == r.RemoteAddr {
			c.addr = tcp
		}
	}
	if r.TLS != nil {
		return secure{c, r.TLS}
	}
	return c
}
