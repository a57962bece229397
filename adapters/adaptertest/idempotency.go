package adaptertest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/idempotency"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

var (
	inProgress = problem(409, "in_progress", "In Progress",
		"The same request is in progress. Try again in a moment.", "")

	// orderKey are the headers of a request that may be repeated.
	orderKey = []string{`Idempotency-Key: "order-1"`}
)

// operation is a rule that lets the signed-in user do each thing once under each key.
func operation(g core.Guard) pipeline.Rule {
	return pipeline.Rule{Guard: g, Who: keyfuncs.User(UserKey), ID: keyfuncs.IdempotencyKey()}
}

func (s *scene) once(options idempotency.Options) pipeline.Rule {
	return operation(idempotency.New(s.gate, "once", options))
}

// post sends one request with a body.
func post(app http.Handler, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, thing, strings.NewReader(body))
	set(r.Header, headers)
	return send(app, r)
}

// wantReplay wants the replay of an earlier answer.
func (s *scene) wantReplay(w *httptest.ResponseRecorder, status int, body string) {
	s.Helper()
	if w.Code != status || w.Body.String() != body || w.Header().Get("Idempotent-Replayed") != "true" ||
		w.Header().Get("Cache-Control") != "no-store" {
		s.Errorf("%d %v %s, want %d %s again", w.Code, w.Header(), w.Body, status, body)
	}
}

// create returns a handler that makes an order and answers with its Location.
func create(ran *int) func(Context) {
	return func(c Context) {
		*ran++
		h := c.Writer().Header()
		h.Set("Location", fmt.Sprint("/orders/", *ran))
		h.Set("Content-Type", "application/json")
		h.Set("Set-Cookie", "session=secret")
		c.Writer().WriteHeader(http.StatusCreated)
		_, _ = c.Writer().Write([]byte(`{"order":`))
		_, _ = fmt.Fprint(c.Writer(), *ran, "}")
	}
}

func operationsAreDoneOnce(s *scene) {
	s.sub("with its body", operationsAreDoneOnceWithItsBody)

	s.sub("not without its body", operationsAreDoneOnceNotWithoutItsBody)

	s.sub("the handler reads the body", operationsAreDoneOnceTheHandlerReadsTheBody)

	s.sub("while it runs", operationsAreDoneOnceWhileItRuns)

	s.sub("while its answer is being sent", operationsAreDoneOnceWhileItsAnswerIsBeingSent)

	s.sub("without a key", operationsAreDoneOnceWithoutAKey)

	s.sub("4xx answers too, where the rule says so", replaysOf4xxAnswers)

	s.sub("with the figures of now, and not by the rule's own answer", replaysHaveTheFiguresOfNow)

	s.sub("a HEAD request is told the header only", replaysToAHEADRequest)

	s.sub("in the shadow it is not told again", operationsAreDoneOnceInTheShadowItIsNotToldAgain)

	s.sub("repetitions are no strikes", func(s *scene) {
		rule := s.once(idempotency.Options{})
		rule.Bans = bans.New(s.gate, "bans", bans.Options{Refusals: 1})
		s.wantPosts(s.framework.Build(onThings(ok, rule)), thing, orderKey, times(5, 200)...)
	})

	s.sub("an outage closes", func(s *scene) {
		app := s.framework.Build(onThings(ok, operation(idempotency.New(s.down(), "once", idempotency.Options{}))))
		golden{503, "1", undecided}.check(s, post(app, "", orderKey...), figures{})
	})
}

func operationsAreDoneOnceWithItsBody(s *scene) {
	ran := 0
	app := s.framework.Build(onThings(create(&ran), s.once(idempotency.Options{MaxBody: 100})))
	if first := post(app, "tv", orderKey...); first.Code != 201 || first.Body.String() != `{"order":1}` ||
		first.Header().Get("Idempotent-Replayed") != "" {
		s.Errorf("the first: %d %v %s", first.Code, first.Header(), first.Body)
	}
	for range 2 {
		again := post(app, "tv", orderKey...)
		s.wantReplay(again, 201, `{"order":1}`)
		if h := again.Header(); h.Get("Location") != "/orders/1" || h.Get("Content-Type") != "application/json" ||
			h.Get("Content-Length") != "11" || h.Get("Set-Cookie") != "" {
			s.Errorf("the header, again: %v", h)
		}
	}
	golden{422, "", conflict}.check(s, post(app, "radio", orderKey...), figures{})
	if w := post(app, "tv", append(orderKey, "X-User: bob")...); w.Code != 201 ||
		w.Body.String() != `{"order":2}` {
		s.Errorf("another's: %d %s", w.Code, w.Body)
	}
	if w := post(app, "tv", "Idempotency-Key: order-2"); w.Code != 201 || w.Body.String() != `{"order":3}` {
		s.Errorf("another: %d %s", w.Code, w.Body)
	}
}

func operationsAreDoneOnceNotWithoutItsBody(s *scene) {
	for _, most := range []int{-1, 10} { // -1: no bodies; 10: not so long ones
		s.sub(fmt.Sprint(most), func(s *scene) {
			ran := 0
			app := s.framework.Build(onThings(create(&ran), s.once(idempotency.Options{MaxBody: most})))
			if first := post(app, "tv", orderKey...); first.Body.String() != `{"order":1}` {
				s.Errorf("the first: %s", first.Body)
			}
			again := post(app, "tv", orderKey...)
			if location := again.Header().Get("Location"); location != "/orders/1" {
				s.Errorf("Location, again: %q", location)
			}
			again.Result().Header.Del("Location") // Result is made once
			golden{409, "", done}.check(s, again, figures{})
		})
	}
}

func operationsAreDoneOnceInTheShadowItIsNotToldAgain(s *scene) {
	ran := 0
	rule, try := inShadow(s.once(idempotency.Options{MaxBody: 100}))
	app := s.framework.Build(onThings(create(&ran), rule))
	for range 3 {
		if w := post(app, "tv", orderKey...); w.Code != 201 || w.Header().Get("Idempotent-Replayed") != "" {
			s.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
		}
	}
	if r := try.Report(); ran != 3 || r.WouldRefuse != 2 {
		s.Errorf("the handler ran %d times: %+v", ran, r)
	}
}

func operationsAreDoneOnceTheHandlerReadsTheBody(s *scene) {
	app := s.framework.Build(onThings(func(c Context) {
		body := make([]byte, 3)
		n, _ := c.Request().Body.Read(body)
		c.Reply(200, string(body[:n]))
	}, s.once(idempotency.Options{})))
	if w := post(app, "tv", orderKey...); w.Body.String() != "tv" {
		s.Errorf("the handler read %q", w.Body)
	}
}

func operationsAreDoneOnceWhileItRuns(s *scene) {
	running, end := make(chan struct{}), make(chan struct{})
	rule := s.once(idempotency.Options{MaxBody: 100})
	rule.Bans = bans.New(s.gate, "bans", bans.Options{Refusals: 1}) // a repetition is no strike
	app := s.framework.Build(onThings(func(c Context) {
		close(running)
		<-end
		ok(c)
	}, rule))
	first := make(chan *httptest.ResponseRecorder, 1)
	go func() { first <- post(app, "tv", orderKey...) }()
	select {
	case <-running:
	case w := <-first:
		s.Fatalf("the first: %d %s", w.Code, w.Body)
	}
	for range 4 {
		golden{409, "1", inProgress}.check(s, post(app, "tv", orderKey...), figures{})
	}
	golden{422, "", conflict}.check(s, post(app, "radio", orderKey...), figures{})
	close(end)
	if w := <-first; w.Code != 200 {
		s.Errorf("the first: %d %s", w.Code, w.Body)
	}
	s.wantReplay(post(app, "tv", orderKey...), 200, "done")
}

func operationsAreDoneOnceWhileItsAnswerIsBeingSent(s *scene) {
	for name, end := range map[string]struct {
		write  func(c Context)
		replay string // "": the answer cannot be replayed
	}{
		"to its end": {func(c Context) { c.Reply(http.StatusCreated, "order") }, "order"},
		"streamed": {func(c Context) {
			c.Reply(http.StatusCreated, "order")
			_ = http.NewResponseController(c.Writer()).Flush()
		}, ""},
		"until it panics": {func(c Context) {
			c.Reply(http.StatusCreated, "order")
			defer panic(http.ErrAbortHandler)
		}, ""},
	} {
		s.sub(name, func(s *scene) {
			sent, leave := make(chan struct{}), make(chan struct{})
			app := s.framework.Build(onThings(func(c Context) {
				defer func() {
					close(sent)
					<-leave
				}()
				end.write(c)
			}, s.once(idempotency.Options{MaxBody: 100})))
			over := make(chan struct{})
			go func() {
				defer close(over)
				defer func() { _ = recover() }()
				post(app, "tv", orderKey...)
			}()
			<-sent
			golden{409, "1", inProgress}.check(s, post(app, "tv", orderKey...), figures{})
			close(leave)
			<-over
			if again := post(app, "tv", orderKey...); end.replay != "" {
				s.wantReplay(again, 201, end.replay)
			} else {
				golden{409, "", done}.check(s, again, figures{})
			}
		})
	}
}

func operationsAreDoneOnceWithoutAKey(s *scene) {
	rule := s.once(idempotency.Options{})
	app := s.framework.Build(onThings(ok, rule))
	golden{400, "", lacks("Idempotency-Key")}.check(s, post(app, "tv"), figures{})
	golden{400, "", malformed}.check(s, post(app, "tv", `Idempotency-Key: "order`), figures{})
	rule.NoKey = pipeline.NoKeySkip
	app = s.framework.Build(onThings(ok, rule))
	for range 2 {
		if w := post(app, "tv"); w.Code != 200 || w.Header().Get("Idempotent-Replayed") != "" {
			s.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
		}
	}
	golden{400, "", malformed}.check(s, post(app, "tv", `Idempotency-Key: "order`), figures{})
}

func replaysOf4xxAnswers(s *scene) {
	rule := s.once(idempotency.Options{MaxBody: 100})
	rule.Failed = func(status int) bool { return status >= 500 }
	status := 404
	app := s.framework.Build(onThings(func(c Context) { c.Reply(status, "no") }, rule))
	s.wantPosts(app, thing, orderKey, 404)
	status = 200
	s.wantReplay(post(app, "", orderKey...), 404, "no")
}

func replaysHaveTheFiguresOfNow(s *scene) {
	rule := s.once(idempotency.Options{MaxBody: 100})
	rule.Answer = func(w http.ResponseWriter, _ *http.Request,
		_ *answers.Refusal) {
		w.WriteHeader(http.StatusTeapot)
	}
	app := onThings(ok, rate(limit.NewSlidingWindow(s.gate, "first", limit.PerHour(9))), rule)
	app.Use = [][]pipeline.Rule{{rate(limit.NewSlidingWindow(s.gate, "site", limit.PerHour(9)))}}
	handler := s.framework.Build(app)
	s.wantPosts(handler, thing, orderKey, 200)
	again := post(handler, "", orderKey...)
	s.wantReplay(again, 200, "done")
	// What the route's first rule took is given back, so its figures are not sent.
	h := again.Header()
	if policies := []string{`"site";q=9;w=3600`,
		`"first";q=9;w=3600`}; !slices.Equal(h.Values("RateLimit-Policy"), policies) ||
		len(h.Values("RateLimit")) != 1 || !strings.HasPrefix(h.Get("RateLimit"), `"site";r=7;`) {
		s.Errorf("the header, again: %v", h)
	}
	if w := post(handler, "another", orderKey...); w.Code != http.StatusTeapot {
		s.Errorf("another request: %d %s", w.Code, w.Body)
	}
}

func replaysToAHEADRequest(s *scene) {
	app := onThings(ok, s.once(idempotency.Options{MaxBody: 100}))
	app.Routes[0].Method = http.MethodHead
	handler := s.framework.Build(app)
	send(handler, request(http.MethodHead, thing, orderKey...))
	w := send(handler, request(http.MethodHead, thing, orderKey...))
	s.wantReplay(w, 200, "")
	if length := w.Header().Get("Content-Length"); length != "4" {
		s.Errorf("Content-Length %q", length)
	}
}
