package adaptertest

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// wire is a server for clients with their own connections.
type wire struct {
	*httptest.Server
	scene *scene
	ended chan struct{} // one value for each handler of the application that has returned
}

// wire starts an application behind this middleware, with or without TLS.
func (s *scene) wire(
	app http.Handler, secure bool, base context.Context, around func(http.Handler) http.Handler,
) *wire {
	s.Helper()
	srv := &wire{scene: s, ended: make(chan struct{}, 1000)}
	var handler http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { srv.ended <- struct{}{} }()
		app.ServeHTTP(w, r)
	})
	if around != nil {
		handler = around(handler)
	}
	srv.Server = httptest.NewUnstartedServer(handler)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // panics are expected
	if base != nil {
		srv.Config.BaseContext = func(net.Listener) context.Context { return base }
	}
	if secure {
		srv.StartTLS()
	} else {
		srv.Start()
	}
	s.Cleanup(srv.Close)
	return srv
}

// client is a connection.
type client struct {
	net.Conn
	tcp   *net.TCPConn
	scene *scene
}

// dial connects to the server.
func (srv *wire) dial() *client {
	srv.scene.Helper()
	conn, err := new(net.Dialer).DialContext(srv.scene.Context(), "tcp", srv.Listener.Addr().String())
	if err != nil {
		srv.scene.Fatal(err)
	}
	c := &client{Conn: conn, tcp: conn.(*net.TCPConn), scene: srv.scene}
	if srv.TLS != nil {
		c.Conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // it is our own
	}
	srv.scene.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
	return c
}

// post sends a request without a body.
func (c *client) post(user string) {
	_, _ = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: test\r\n%s: %s\r\nX-Choice: red\r\nContent-Length: "+
		"0\r\n\r\n",
		thing, UserHeader, user)
}

// halfClose ends what the client sends; the client goes on reading. That is a FIN, or a close_notify of TLS.
func (c *client) halfClose() {
	if secure, ok := c.Conn.(*tls.Conn); ok {
		_ = secure.CloseWrite()
	} else {
		_ = c.tcp.CloseWrite()
	}
}

// reset ends the connection by a RST.
func (c *client) reset() {
	_ = c.tcp.SetLinger(0)
	_ = c.tcp.Close()
}

// answer reads the status of the answer and as much of its body as there is; 0: no answer.
func (c *client) answer() (status int, body string) {
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, ""
	}
	b, _ := io.ReadAll(answer.Body)
	_ = answer.Body.Close() // read to its end
	return answer.StatusCode, string(b)
}

// wait waits for one more request to have been settled.
func (srv *wire) wait() {
	srv.scene.Helper()
	select {
	case <-srv.ended:
	case <-time.After(2 * time.Minute):
		srv.scene.Fatal("the request does not end")
	}
}

// deed is a behavior of a handler.
type deed struct {
	name   string
	do     func(Context)
	status int  // status of its answer; 0: none
	panics bool // it panics after that
}

var deeds = []deed{
	{"201", reply(201, "sold"), 201, false},
	{"404", reply(404, "no"), 404, false},
	{"nothing", nothing, 0, false},
	{"a panic", func(Context) { panic("lost") }, 0, true},
	{"200, then a panic", streamed(func() { panic("lost") }), 200, true},
}

// trouble is an event on the connection or the context while the handler works.
type trouble struct {
	name   string
	make   func(c *client, stop context.CancelFunc)
	deaf   bool // the client can no longer read
	secure bool
}

var troubles = []trouble{
	{"none", nil, false, false},
	{"FIN", func(c *client, _ context.CancelFunc) { c.halfClose() }, false, false},
	{"close_notify", func(c *client, _ context.CancelFunc) { c.halfClose() }, false, true},
	{"RST", func(c *client, _ context.CancelFunc) { c.reset() }, true, false},
	{"BaseContext cancelled", func(_ *client, stop context.CancelFunc) { stop() }, false, false},
}

// surrounding is a middleware around the application.
type surrounding struct {
	name   string
	around func(http.Handler) http.Handler
	over   bool // it ends the context while the handler works
	buffer bool // its writer cannot flush
	late   bool // and it answers 503 itself by then
	races  bool // it answers 503 itself when the context is over, unless the handler is faster
}

var surroundings = []surrounding{
	{name: "nothing"},
	{name: "a timeout of the context", around: contextTimeout, over: true},
	{name: "a timeout that answers", around: timeout(soon), over: true, buffer: true, late: true},
	{name: "a timeout that is far", around: timeout(time.Hour), buffer: true, races: true},
	{name: "a writer that hides the server's", around: hiding, buffer: true},
}

// contextTimeout ends the context of a request, as middleware of chi and echo does; chi's answers 504 where
// nothing else answers.
func contextTimeout(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), soon)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// hiding has a writer without Flush or Unwrap, like that of a simple logging middleware.
func hiding(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(struct{ http.ResponseWriter }{w}, r)
	})
}

// want returns the expected statuses: the one that rules get, and the one that the client gets; 0: none.
func (d deed) want(t trouble, around surrounding) (counts, hears int) {
	over := t.make != nil || around.over
	lost := d.panics && (d.status == 0 || around.buffer) // the panic comes before the answer
	switch {
	case lost && over, over && around.buffer, over && d.status == 0:
		counts, hears = pipeline.StatusClientGone, http.StatusServiceUnavailable
	case lost:
		counts, hears = http.StatusInternalServerError, 0
	case d.status == 0:
		counts, hears = http.StatusOK, http.StatusOK
	default:
		counts, hears = d.status, d.status
	}
	if lost {
		hears = 0
	}
	if around.late {
		hears = http.StatusServiceUnavailable
	}
	if t.deaf {
		hears = 0
	}
	return counts, hears
}

// endingsOnTheWire is the table of docs/contracts.md: handler x connection and context x middleware around.
func endingsOnTheWire(s *scene) {
	for i, around := range surroundings {
		for j, t := range troubles {
			for k, d := range deeds {
				if !runs(i+j+k) || around.late && t.make != nil && !t.deaf {
					continue // it is undefined which of the two ends the context first
				}
				s.sub(around.name+", "+t.name+", "+d.name, func(s *scene) { s.endOnTheWire(d, t, around) })
			}
		}
	}
}

func (s *scene) endOnTheWire(d deed, t trouble, around surrounding) {
	purchase, exports := s.sale("sale", seckill.Sale{Stock: 1}), s.semaphore(1)
	heard, entered, answered := make(chan int, 10), make(chan struct{}, 1), make(chan struct{})
	listener := rate(limit.NewSlidingWindow(s.gate, "listener", limit.PerHour(100)))
	listener.Failed = func(status int) bool { heard <- status; return false }
	app := s.framework.Build(onThings(func(c Context) {
		entered <- struct{}{}
		if t.make != nil || around.over {
			<-c.Request().Context().Done()
		}
		if around.late && !t.deaf {
			<-answered
		}
		d.do(c)
	}, listener, claim(exports), claim(purchase)))
	base, stop := context.WithCancel(s.Context())
	defer stop()
	srv := s.wire(app, t.secure, base, around.around)
	c := srv.dial()
	c.post("ann")
	<-entered
	if t.make != nil {
		t.make(c, stop)
	}
	counts, hears := d.want(t, around)
	if !t.deaf {
		if status, _ := c.answer(); status != hears &&
			(!around.races || t.make == nil || status != http.StatusServiceUnavailable) {
			s.Errorf("the client got %d, want %d", status, hears)
		}
	}
	close(answered)
	srv.wait()
	if got := <-heard; got != counts {
		s.Errorf("the rules hear %d, want %d", got, counts)
	}
	if counts < 400 {
		s.wantSale(purchase, 0, 0, 1)
	} else {
		s.wantSale(purchase, 1, 0, 0)
	}
	s.wantFree(exports)
}

// halfClosedConnectionsAreCounted: 50 guesses over half-closed connections got 401 fifty times.
func halfClosedConnectionsAreCounted(s *scene) {
	for _, secure := range []bool{false, true} {
		s.sub(fmt.Sprint("TLS ", secure), func(s *scene) {
			logins := rate(limit.NewSlidingWindow(s.gate, "logins", limit.PerHour(5)))
			logins.Failed = func(status int) bool { return status != http.StatusUnauthorized }
			srv := s.wire(s.framework.Build(onThings(func(c Context) {
				<-c.Request().Context().Done()
				c.Reply(http.StatusUnauthorized, "no")
			}, logins)), secure, nil, nil)
			statuses := map[int]int{}
			for range 50 {
				c := srv.dial()
				c.post("ann")
				c.halfClose()
				status, _ := c.answer()
				statuses[status]++
				srv.wait()
			}
			if statuses[401] != 5 || statuses[429] != 45 {
				s.Errorf("50 guesses: %v, want 5 times 401 and 45 times 429", statuses)
			}
		})
	}
}

// timeoutsDoNotOversell: ten buyers of one unit, all slower than a timeout of the context around them, got
// 201 ten times.
func timeoutsDoNotOversell(s *scene) {
	purchase := s.sale("sale", seckill.Sale{Stock: 1})
	srv := s.wire(s.framework.Build(onThings(func(c Context) {
		<-c.Request().Context().Done()
		c.Reply(http.StatusCreated, "sold")
	}, claim(purchase))), false, nil, contextTimeout)
	statuses := map[int]int{}
	for i := range 10 {
		c := srv.dial()
		c.post(fmt.Sprint("buyer ", i))
		status, _ := c.answer()
		statuses[status]++
		srv.wait()
	}
	if statuses[201] != 1 || statuses[409] != 9 {
		s.Errorf("10 buyers of one unit: %v", statuses)
	}
	s.wantSale(purchase, 0, 0, 1)
}

// slowBodiesDoNotOutlastTheHold: the sale was confirmed when a body of minutes had been written, and two
// buyers got 201.
func slowBodiesDoNotOutlastTheHold(s *scene) {
	s.clock(noon)
	purchase := s.sale("sale", seckill.Sale{Stock: 1, Hold: time.Minute})
	begun, end := make(chan struct{}, 2), make(chan struct{})
	srv := s.wire(s.framework.Build(onThings(func(c Context) {
		c.Writer().WriteHeader(http.StatusCreated)
		_ = http.NewResponseController(c.Writer()).Flush() // the client is there
		begun <- struct{}{}
		<-end
		_, _ = io.Copy(c.Writer(), strings.NewReader(strings.Repeat("slow ", 1<<20))) // the client reads late
	}, claim(purchase))), false, nil, nil)
	ann := srv.dial()
	ann.post("ann")
	<-begun
	s.clock(noon.Add(time.Hour))
	bob := srv.dial()
	bob.post("bob")
	if status, _ := bob.answer(); status != http.StatusConflict {
		s.Errorf("the second buyer hears %d", status)
	}
	close(end)
	if status, body := ann.answer(); status != http.StatusCreated || len(body) != 5<<20 {
		s.Errorf("the first buyer hears %d and %d bytes", status, len(body))
	}
	s.wantSale(purchase, 0, 0, 1)
}

// slowWritersAreServed: a client that sends its body slowly counts like any other.
func slowWritersAreServed(s *scene) {
	purchase := s.sale("sale", seckill.Sale{Stock: 1})
	half := make(chan struct{})
	srv := s.wire(s.framework.Build(onThings(func(c Context) {
		first := make([]byte, 1)
		_, _ = io.ReadFull(c.Request().Body, first)
		close(half)
		rest, _ := io.ReadAll(c.Request().Body)
		c.Reply(http.StatusCreated, string(first)+string(rest))
	}, claim(purchase))), true, nil, nil)
	c := srv.dial()
	_, _ = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: test\r\n%s: ann\r\nContent-Length: 2\r\n\r\nt", thing,
		UserHeader)
	<-half
	_, _ = io.WriteString(c, "v")
	if status, body := c.answer(); status != http.StatusCreated || body != "tv" {
		s.Errorf("%d %q", status, body)
	}
	s.wantSale(purchase, 0, 0, 1)
}

// unconfirmedAnswersAreNotGiven: where the promise cannot be kept, the client gets the reason, and nothing
// of the handler's answer.
func unconfirmedAnswersAreNotGiven(s *scene) {
	for _, c := range []struct {
		err    error
		status int
		reason string
	}{
		{core.ErrGone, 409, "gone"},
		{core.ErrUnconfirmed, 503, "unconfirmed"},
		{io.ErrUnexpectedEOF, 503, "unavailable"},
	} {
		for _, d := range []deed{
			{"a reply", reply(201, "sold"), 201, false},
			{"nothing", nothing, 0, false},
			{"a stream", streamedGently, 200, false},
			{"a hijack", hijackGently, 200, false},
		} {
			s.sub(c.reason+", "+d.name, func(s *scene) {
				notes := &diary{}
				guard := &stub{name: "own", traits: core.Traits{Confirms: true}, sureErr: c.err, diary: notes}
				vote := claim(&stub{name: "vote", diary: notes})
				srv := s.wire(s.framework.Build(onThings(func(x Context) {
					x.Writer().Header().Set("Set-Cookie", "session=secret")
					x.Writer().Header().Set("Location", "/orders/1")
					d.do(x)
				}, claim(guard), vote)), false, nil, nil)
				conn := srv.dial()
				conn.post("ann")
				answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					s.Fatal(err)
				}
				body, _ := io.ReadAll(answer.Body)
				_ = answer.Body.Close() // read to its end
				if answer.StatusCode != c.status || !strings.Contains(string(body), `"reason":"`+c.reason+`"`) ||
					strings.Contains(string(body), "sold") {
					s.Errorf("%d %s", answer.StatusCode, body)
				}
				if h := answer.Header; h.Get("Set-Cookie") != "" || h.Get("Location") != "" ||
					h.Get("Cache-Control") != "no-store" ||
					(h.Get("Retry-After") != "") != (c.status == 503) {
					s.Errorf("the header: %v", h)
				}
				srv.wait()
				notes.mu.Lock()
				defer notes.mu.Unlock()
				if got := strings.Join(notes.notes, ", "); got !=
					"check own, check vote, settle own true, settle own false, settle vote false" {
					s.Errorf("what happened: %s", got)
				}
			})
		}
	}
}

// streamedGently goes on writing after errors.
func streamedGently(c Context) {
	for range 3 {
		_, _ = io.WriteString(c.Writer(), "sold")
		_ = http.NewResponseController(c.Writer()).Flush()
	}
}

// hijackGently answers by itself where it may.
func hijackGently(c Context) {
	if conn, _, err := http.NewResponseController(c.Writer()).Hijack(); err == nil {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nsold")
		_ = conn.Close()
	}
}

// panicsAfterAYesChangeNothing: a promise stands, wherever the framework's recoverer is.
func panicsAfterAYesChangeNothing(s *scene) {
	for name, where := range map[string]Recover{"none": NoRecover, "outside": RecoverOutside,
		"inside": RecoverInside} {
		s.sub(name, func(s *scene) {
			purchase := s.sale("sale", seckill.Sale{Stock: 1})
			app := onThings(streamed(func() { panic("lost") }), claim(purchase))
			app.Recover = where
			srv := s.serve(s.framework.Build(app))
			if answer := srv.do(s.Context(), http.MethodPost); answer.Response == nil ||
				answer.StatusCode != http.StatusOK {
				s.Errorf("the client got %+v", answer)
			}
			srv.wait()
			redistest.Eventually(s, time.Minute, func() bool {
				status, err := purchase.Status(s.Context(), "t1")
				return err == nil && status.Sold == 1
			}, "the unit is sold")
		})
	}
}
