package adaptertest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/lock"
	"github.com/gatehouse-go/gatehouse/core/quota"
	"github.com/gatehouse-go/gatehouse/core/redpacket"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// ending is a way for a request to end.
type ending struct {
	name    string
	handler func(Context)
	// the handler continues only after the client is gone, or after a middleware around it has answered
	gone   bool
	begun  bool // and after the answer has begun
	status int  // status that the client gets; 0: none
	counts int  // status that the rules get
	cut    bool // the connection is cut
	only1  bool // HTTP/2 has no such thing

	// replay is the answer that rules keep and replay, its status and its body; "": none.
	replay string

	headers []string                        // headers of the request
	around  func(http.Handler) http.Handler // what wraps the server's handler
	// layout of the application; nil: the rules are on the route
	layout func(handler func(Context), rules ...pipeline.Rule) App
	// stops the server when the handler runs, which continues only then
	stop func(*http.Server) error
}

func reply(status int, body string) func(Context) {
	return func(c Context) { c.Reply(status, body) }
}

func nothing(Context) {}

// begin sends the beginning of an answer.
func begin(c Context) {
	_, _ = c.Writer().Write([]byte("the begin")) // the client is there
	if err := http.NewResponseController(c.Writer()).Flush(); err != nil {
		panic(err)
	}
}

// streamed is a handler that has sent the beginning of its answer when it goes on.
func streamed(next func()) func(Context) {
	return func(c Context) {
		begin(c)
		next()
	}
}

// doneBefore is the replay for an answer that did not come to its end.
var doneBefore = "409 " + done

var endings = []ending{
	{name: "200", replay: "200 done", handler: reply(200, "done"), status: 200, counts: 200},
	{name: "201 without a body", replay: "201 ", handler: reply(201, ""), status: 201, counts: 201},
	{name: "204", replay: "204 ", handler: reply(204, ""), status: 204, counts: 204},
	{name: "302", replay: "302 ", handler: reply(302, ""), status: 302, counts: 302},
	{name: "nothing written", replay: "200 ", handler: nothing, status: 200, counts: 200},
	{name: "written without a status", replay: "200 done", handler: func(c Context) {
		_, _ = c.Writer().Write([]byte("done")) // the client is there
	}, status: 200, counts: 200},
	{name: "streamed", replay: doneBefore, handler: streamed(func() {}), status: 200, counts: 200},
	{name: "400", handler: reply(400, "no"), status: 400, counts: 400},
	{name: "404 without a body", handler: reply(404, ""), status: 404, counts: 404},
	{name: "409", handler: reply(409, "no"), status: 409, counts: 409},
	{name: "500", handler: reply(500, "no"), status: 500, counts: 500},
	{name: "503 by the writer", handler: func(c Context) { c.Writer().WriteHeader(503) }, status: 503,
		counts: 503},
	{name: "panic", handler: func(Context) { panic("lost") }, counts: 500, cut: true},
	{name: "panic to abort", handler: func(Context) { panic(http.ErrAbortHandler) }, counts: 500, cut: true},
	{name: "panic after the beginning", replay: doneBefore, handler: streamed(func() { panic("lost") }),
		status: 200, counts: 200, cut: true},
	// gin sends a status with the first byte of the body only, so this one flushes.
	{name: "panic after a status", replay: doneBefore, handler: func(c Context) {
		c.Writer().WriteHeader(http.StatusCreated)
		_ = http.NewResponseController(c.Writer()).Flush() // the client is there
		panic("lost")
	}, status: 201, counts: 201, cut: true},
	{name: "failed, then panic", handler: func(c Context) {
		c.Writer().WriteHeader(http.StatusNotFound)
		_ = http.NewResponseController(c.Writer()).Flush() // the client is there
		panic("lost")
	}, status: 404, counts: 404, cut: true},
	{name: "goroutine ended", handler: func(Context) { runtime.Goexit() }, counts: 500, cut: true},
	{name: "client gone, nothing written", handler: nothing, gone: true, counts: pipeline.StatusClientGone,
		cut: true},
	// A written status counts, whether or not the client gets it: a client that has closed one side of its
	// connection still reads.
	{name: "client gone, 200 written", replay: "200 done", handler: reply(200, "done"), gone: true, counts: 200,
		cut: true},
	{name: "client gone, 500 written", handler: reply(500, "no"), gone: true, counts: 500, cut: true},
	{name: "client gone after the answer had begun", replay: doneBefore, handler: nothing, gone: true,
		begun:  true,
		counts: 200, cut: true},
	{name: "client gone after the answer had begun, then panic", replay: doneBefore,
		handler: func(Context) { panic("lost") },
		gone:    true, begun: true, counts: 200, cut: true},
	{name: "client gone, then panic", handler: func(Context) { panic("lost") }, gone: true,
		counts: pipeline.StatusClientGone, cut: true},
	{name: "written by io.Copy", replay: "200 done", handler: func(c Context) {
		_, _ = io.Copy(c.Writer(), strings.NewReader("done")) // the client is there
	}, status: 200, counts: 200},
	{name: "with deadlines by http.ResponseController", replay: "200 done", handler: func(c Context) {
		control := http.NewResponseController(c.Writer())
		later := time.Now().Add(time.Hour)
		if err := errors.Join(control.SetReadDeadline(later), control.SetWriteDeadline(later)); err != nil {
			panic(err)
		}
		c.Reply(http.StatusOK, "done")
	}, status: 200, counts: 200},
	{name: "hijacked", replay: doneBefore, handler: hijack, status: 200, counts: 200, only1: true},
	{name: "a timeout inside the rules, in time", replay: "200 done",
		handler: inTimeoutHandler(time.Hour,
			func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") }),
		status: 200, counts: 200},
	{name: "a timeout inside the rules, too late",
		handler: inTimeoutHandler(soon, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }),
		status:  503, counts: 503},
	{name: "a timeout inside the rules, panic",
		handler: inTimeoutHandler(time.Hour, func(http.ResponseWriter, *http.Request) { panic("lost") }),
		counts:  500, cut: true},
	{name: "a timeout around the rules, in time", replay: "201 done", handler: reply(201, "done"),
		around: timeout(time.Hour),
		status: 201, counts: 201},
	{name: "a timeout around the rules, panic", handler: func(Context) { panic("lost") },
		around: timeout(time.Hour),
		counts: 500, cut: true},
	// The client got 503, so it did not get what it asked for.
	{name: "a timeout around the rules, too late", handler: reply(200, "done"), gone: true,
		around: timeout(soon),
		status: 503, counts: pipeline.StatusClientGone},
	{name: "a timeout around the rules, too late, then panic", handler: func(Context) { panic("lost") },
		gone:   true,
		around: timeout(soon), status: 503, counts: pipeline.StatusClientGone},
	{name: "server shutting down", replay: "200 done", handler: reply(200, "done"), stop: shutdown, status: 200,
		counts: 200},
	{name: "server shutting down, 500", handler: reply(500, "no"), stop: shutdown, status: 500, counts: 500},
	{name: "server closed", replay: "200 done", handler: reply(200, "done"), gone: true,
		stop:   (*http.Server).Close,
		counts: 200, cut: true},
	{name: "server closed, nothing written", handler: nothing, gone: true, stop: (*http.Server).Close,
		counts: pipeline.StatusClientGone, cut: true},
}

// hijack answers past the server.
func hijack(c Context) {
	conn, _, err := http.NewResponseController(c.Writer()).Hijack()
	if err != nil {
		panic(err)
	}
	defer func() { _ = conn.Close() }() // it has been flushed
	_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\ndone")
}

// inTimeoutHandler runs a handler inside http.TimeoutHandler.
func inTimeoutHandler(limit time.Duration, h http.HandlerFunc) func(Context) {
	return func(c Context) { http.TimeoutHandler(h, limit, "too late").ServeHTTP(c.Writer(), c.Request()) }
}

// soon is the timeout that handlers wait for.
const soon = 5 * time.Millisecond

// timeout is http.TimeoutHandler around everything.
func timeout(limit time.Duration) func(http.Handler) http.Handler {
	return func(app http.Handler) http.Handler { return http.TimeoutHandler(app, limit, "too late") }
}

func shutdown(srv *http.Server) error { return srv.Shutdown(context.Background()) }

// failed reports whether a request with this ending failed.
func (e ending) failed() bool { return e.counts >= 400 }

// play ends a request in this way, on the one route that the rules guard. It returns after the settlement,
// with what the client received. The route answers other methods as well, with 200.
func (e ending) play(s *scene, rules ...pipeline.Rule) (app http.Handler, heard response) {
	s.Helper()
	entered, stopping, answered := make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	handler := func(c Context) {
		if c.Request().Method == http.MethodPut {
			ok(c)
			return
		}
		if e.begun {
			begin(c)
		}
		entered <- struct{}{}
		switch {
		case e.gone && e.around != nil:
			<-answered
		case e.gone:
			<-c.Request().Context().Done()
		case e.stop != nil:
			<-stopping
		}
		e.handler(c)
	}
	layout := onThings
	if e.layout != nil {
		layout = e.layout
	}
	planned := layout(handler, rules...)
	put := planned.Routes[0]
	put.Method = http.MethodPut
	planned.Routes = append(planned.Routes, put)
	app = s.framework.Build(planned)
	var around []func(http.Handler) http.Handler
	if e.around != nil {
		around = append(around, e.around)
	}
	srv := s.serve(app, around...)
	srv.Config.RegisterOnShutdown(func() { close(stopping) })
	ctx, cancel := context.WithCancelCause(s.Context())
	defer cancel(nil)
	switch {
	case e.stop != nil:
		stopped := make(chan struct{})
		defer func() { <-stopped }()
		go func() {
			defer close(stopped)
			<-entered
			if err := e.stop(srv.Config); err != nil {
				s.Errorf("stopping the server: %v", err)
			}
		}()
	case e.gone && e.around == nil:
		go func() {
			<-entered
			cancel(errors.New("the user has closed the page"))
		}()
	}
	heard = srv.do(ctx, http.MethodPost, e.headers...)
	close(answered)
	srv.wait()
	if !e.gone && heard.cut != e.cut {
		s.Errorf("the connection was cut: %t, want %t", heard.cut, e.cut)
	}
	if e.status > 0 && (heard.Response == nil || heard.StatusCode != e.status) {
		s.Errorf("the client got %+v, want %d", heard.Response, e.status)
	}
	return app, heard
}

// taking is a rule and its expected result of an ending.
type taking struct {
	name  string
	rule  func(s *scene) pipeline.Rule
	keeps func(ending) bool
}

func onSuccess(e ending) bool { return !e.failed() }

func always(ending) bool { return true }

func never(ending) bool { return false }

var takings = []taking{
	{"a vote", func(s *scene) pipeline.Rule { return vote(votes.New(s.gate, "vote", votes.Options{})) },
		onSuccess},
	{"a purchase", func(s *scene) pipeline.Rule { return claim(s.sale("sale", seckill.Sale{Stock: 5})) },
		onSuccess},
	{"a share of a red packet", func(s *scene) pipeline.Rule {
		return claim(s.packet(redpacket.Packet{Total: 50, Shares: 5, Min: 10, Expires: time.Now().Add(time.Hour)}))
	}, always},
	{"an item of a quota", func(s *scene) pipeline.Rule {
		rule := vote(s.quota(1, oneEra))
		rule.Which = keyfuncs.Method() // so the second request is for another item
		return rule
	}, onSuccess},
	{"a unit of a limit", limitOf(limit.PerHour(1)), always},
	{"a unit of a limit that counts successes", func(s *scene) pipeline.Rule {
		rule := rate(limit.NewSlidingWindow(s.gate, "limit", limit.PerHour(1)))
		rule.Failed = func(status int) bool { return status >= 400 }
		return rule
	}, onSuccess},
	{"a permit of a semaphore", func(s *scene) pipeline.Rule { return claim(s.semaphore(1)) }, never},
	{"a lock", func(s *scene) pipeline.Rule { return claim(s.lock()) }, never},
	{"a purchase that no failure undoes", func(s *scene) pipeline.Rule {
		rule := claim(s.sale("sale", seckill.Sale{Stock: 5}))
		rule.Failed = func(int) bool { return false }
		return rule
	}, always},
}

// wantKept wants the claim of ann's request to be kept, or not.
func (s *scene) wantKept(g core.Guard, kept bool) {
	s.Helper()
	switch g := g.(type) {
	case *votes.Guard:
		if kept {
			s.wantTally(g, map[string]int64{"red": 1})
		} else {
			s.wantTally(g, nil)
		}
	case *quota.Guard:
		if kept {
			s.wantUsed(g, http.MethodPost)
		} else {
			s.wantUsed(g)
		}
	case *seckill.Guard:
		if kept {
			s.wantSale(g, 4, 0, 1)
		} else {
			s.wantSale(g, 5, 0, 0)
		}
	case *semaphore.Guard:
		s.wantFree(g)
	case *lock.Guard:
		s.wantUnlocked(g)
	case *redpacket.Guard:
		s.wantGrabbed(g, map[string]int64{"ann": 10})
	}
}

func endingsSettle(s *scene) {
	for i, taking := range takings {
		for j, e := range endings {
			if !runs(i + j) {
				continue
			}
			s.sub(taking.name+", "+e.name, func(s *scene) {
				rule := taking.rule(s)
				app, _ := e.play(s, rule)
				kept := taking.keeps(e)
				s.wantKept(rule.Guard, kept)

				// What was given back can be taken again by the same user; what was kept cannot.
				again := send(app, request(http.MethodPut, thing))
				if (again.Code == http.StatusOK) == kept {
					s.Errorf("once more: %d %s", again.Code, again.Body)
				}
			})
		}
	}
}
