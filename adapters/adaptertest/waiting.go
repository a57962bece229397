package adaptertest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/waitingroom"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

const (
	acceptPage  = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	tokenCookie = "__Host-gatehouse-shop"
	asProblem   = "application/problem+json"
	variesBy    = "Accept, Accept-Language, Sec-Fetch-Mode, Cookie, Gatehouse-Token"
)

// room makes a waiting room with this many places inside.
func (s *scene) room(options waitingroom.Options) pipeline.Rule {
	options.Secrets = [][]byte{[]byte("a secret of sixteen bytes")}
	return pipeline.Rule{Guard: waitingroom.New(s.gate, "shop", options), Who: keyfuncs.Visitor()}
}

// shop is an application behind the rules, and how often its handler has run.
func (s *scene) shop(handler func(Context), rules ...pipeline.Rule) (app http.Handler, ran *int) {
	ran = new(int)
	var routes []Route
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodOptions} {
		routes = append(routes, Route{Method: method, Path: "/things/{thing}", Rules: rules,
			Handler: func(c Context) { *ran++; handler(c) }})
	}
	return s.framework.Build(App{Routes: routes}), ran
}

// visit sends a request that keeps its ticket in a cookie, as a browser does.
func visit(app http.Handler, method, ticket string, headers ...string) *httptest.ResponseRecorder {
	if ticket != "" {
		headers = append(headers, "Cookie: "+tokenCookie+"="+ticket)
	}
	return send(app, request(method, thing, headers...))
}

// ticketOf returns what a response has a browser keep.
func (s *scene) ticketOf(w *httptest.ResponseRecorder) string {
	s.Helper()
	cookies := w.Result().Cookies()
	if len(cookies) != 1 {
		s.Fatalf("%d %v: %d cookies, want a ticket", w.Code, w.Header(), len(cookies))
	}
	c := cookies[0]
	if c.Name != tokenCookie || c.Value == "" || !c.Secure || !c.HttpOnly || c.Path != "/" || c.Domain != "" ||
		c.SameSite != http.SameSiteLaxMode || c.MaxAge != 0 || !c.Expires.IsZero() {
		s.Errorf("the cookie is %v", c)
	}
	return c.Value
}

// wantWaiting wants the answer for programs.
func (s *scene) wantWaiting(name string, w *httptest.ResponseRecorder, status int) {
	s.Helper()
	h := w.Result().Header
	retry, _ := strconv.Atoi(h.Get("Retry-After"))
	if w.Code != status || h.Get("Content-Type") != asProblem || h.Get("Cache-Control") != "no-store" ||
		retry < 1 || strings.Join(h.Values("Vary"), ", ") != variesBy {
		s.Errorf("%s: %d %v, want %d", name, w.Code, h, status)
	}
	if w.Body.Len() == 0 {
		return
	}
	var body struct {
		Reason, State   string
		Status          int
		Position, Ahead float64
	}
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || body.Status != status ||
		body.State != "open" ||
		body.Position < 1 || body.Ahead != body.Position-1 {
		s.Errorf("%s: %v %s", name, err, w.Body)
	}
}

// waitingIsAnsweredAsAsked: only page views get the page, the handler runs for nobody who waits, and the
// ticket comes with every form of the answer.
func waitingIsAnsweredAsAsked(s *scene) {
	app, ran := s.shop(ok, s.room(waitingroom.Options{Capacity: 1}))
	if w := visit(app, http.MethodGet, ""); w.Code != 200 { // takes the one place
		s.Fatalf("the first visitor: %d %s", w.Code, w.Body)
	}
	page := visit(app, http.MethodGet, "", acceptPage, "Sec-Fetch-Mode: navigate")
	ticket := s.ticketOf(page)
	h := page.Result().Header
	if page.Code != 200 || h.Get("Content-Type") != "text/html; charset=utf-8" ||
		h.Get("X-Robots-Tag") != "noindex" || strings.Join(h.Values("Vary"), ", ") != variesBy ||
		h.Get("Cache-Control") != "no-store" || !strings.Contains(page.Body.String(), "You are in line") ||
		!strings.Contains(page.Body.String(), `<strong id="position">`) {
		s.Errorf("the page: %d %v\n%s", page.Code, h, page.Body)
	}
	if page = visit(app, http.MethodGet, ticket, acceptPage, "Accept-Language:"); page.Code != 200 ||
		page.Result().Header.Get("Set-Cookie") != "" {
		s.Errorf("once more: %d %v", page.Code, page.Result().Header)
	}
	for name, c := range map[string]struct {
		method  string
		headers []string
	}{
		"a program":           {http.MethodGet, nil},
		"a fetch of JSON":     {http.MethodGet, []string{"Accept: " + asProblem, "Sec-Fetch-Mode: cors"}},
		"a fetch of HTML":     {http.MethodGet, []string{acceptPage, "Sec-Fetch-Mode: cors"}},
		"a form":              {http.MethodPost, []string{acceptPage, "Sec-Fetch-Mode: navigate"}},
		"HEAD of a program":   {http.MethodHead, nil},
		"OPTIONS":             {http.MethodOptions, []string{acceptPage}},
		"a POST of a program": {http.MethodPost, nil},
	} {
		w := visit(app, c.method, ticket, c.headers...)
		s.wantWaiting(name, w, http.StatusTooManyRequests)
		if (c.method == http.MethodHead) != (w.Body.Len() == 0) {
			s.Errorf("%s: body %q", name, w.Body)
		}
	}
	head := visit(app, http.MethodHead, ticket, acceptPage)
	if hh := head.Result().Header; head.Code != 200 || head.Body.Len() > 0 || hh.Get("Retry-After") == "" ||
		hh.Get("Content-Type") != "text/html; charset=utf-8" || hh.Get("X-Robots-Tag") != "noindex" {
		s.Errorf("HEAD of a page: %d %v %s", head.Code, hh, head.Body)
	}
	forged := visit(app, http.MethodOptions, "", "Origin: https://shop.example",
		"Access-Control-Request-Method: GET")
	if forged.Code != http.StatusForbidden || *ran != 1 {
		s.Errorf("a preflight: %d %s; the handler ran %d times", forged.Code, forged.Body, *ran)
	}
	chinese := visit(app, http.MethodGet, "", acceptPage, "Accept-Language: zh-CN,zh;q=0.9,en;q=0.8")
	if chinese.Result().Header.Get("Content-Language") != "zh-Hans" ||
		!strings.Contains(chinese.Body.String(), "您正在排队") ||
		!strings.Contains(chinese.Body.String(), "排队位置") {
		s.Errorf("in Chinese: %v\n%s", chinese.Result().Header, chinese.Body)
	}
}

// ticketsAreKept: a visitor who comes with their ticket keeps their place, and whatever else comes in its
// place is somebody who has just come.
func ticketsAreKept(s *scene) {
	app, _ := s.shop(ok, s.room(waitingroom.Options{Capacity: 1}))
	visit(app, http.MethodGet, "")
	first := s.ticketOf(visit(app, http.MethodGet, ""))
	second := s.ticketOf(visit(app, http.MethodGet, ""))
	for name, cookie := range map[string]string{
		"forged":  first[:len(first)-1],
		"huge":    strings.Repeat("x", 100_000),
		"escaped": "%zz",
		"doubled": first + "; " + tokenCookie + "=" + second,
		"plain":   "; gatehouse-shop=" + first, // a subdomain may set that one
	} {
		if w := visit(app, http.MethodGet, cookie); w.Code != 429 || s.ticketOf(w) == first {
			s.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	if w := visit(app, http.MethodGet, first+"; "+tokenCookie+"="+first); w.Code != 429 ||
		w.Result().Header.Get("Set-Cookie") != "" {
		s.Errorf("twice the same: %d %v", w.Code, w.Result().Header)
	}
	other := visit(app, http.MethodGet, first, "User-Agent: another")
	if !strings.Contains(other.Body.String(), `"reason":"elsewhere"`) || s.ticketOf(other) == first {
		s.Errorf("another browser: %d %s", other.Code, other.Body)
	}
	s.wantWaiting("the first one", visit(app, http.MethodGet, first), 429)
}

// appsKeepTicketsInAField: who sends the field gets the field, and no cookie.
func appsKeepTicketsInAField(s *scene) {
	app, _ := s.shop(func(c Context) {
		c.Writer().Header().Set("Access-Control-Allow-Origin", "https://app.example")
		ok(c)
	}, s.room(waitingroom.Options{Capacity: 1}))
	ask := func(field string) *httptest.ResponseRecorder {
		r := request(http.MethodGet, thing, "Origin: https://app.example")
		r.Header.Set(answers.TokenHeader, field)
		return send(app, r)
	}
	in := ask("")
	pass := in.Header().Get(answers.TokenHeader)
	exposed := strings.Join(in.Header().Values("Access-Control-Expose-Headers"), ", ")
	if in.Code != 200 || !strings.HasPrefix(pass, "shop=") || !strings.Contains(exposed, answers.TokenHeader) {
		s.Errorf("the first one: %d %v", in.Code, in.Header())
	}
	waits := ask("other=1, , x")
	ticket := waits.Header().Get(answers.TokenHeader)
	if waits.Code != 429 || !strings.HasPrefix(ticket, "shop=") {
		s.Fatalf("the next one: %d %v", waits.Code, waits.Header())
	}
	again := ask("other=1," + ticket)
	s.wantWaiting("again", again, 429)
	for _, w := range []*httptest.ResponseRecorder{in, waits, again} {
		if w.Header().Get("Set-Cookie") != "" {
			s.Errorf("a cookie for an app: %v", w.Header())
		}
	}
	if w := ask(pass); w.Code != 200 {
		s.Errorf("with the pass: %d %s", w.Code, w.Body)
	}
	if w := visit(app, http.MethodGet, strings.TrimPrefix(pass, "shop=")); w.Code != 200 {
		s.Errorf("with the pass in a cookie: %d %s", w.Code, w.Body)
	}
}

// passesAreForOneClient: the answer that has the pass is stored by no shared cache, whatever the handler
// says of it and however it ends; other answers stay as they are.
func passesAreForOneClient(s *scene) {
	for name, c := range map[string]struct {
		says, want []string // Cache-Control
		handler    func(Context)
	}{
		"says nothing":   {nil, []string{"private"}, ok},
		"public":         {[]string{"public, max-age=60", "s-maxage=90"}, []string{"private, max-age=60"}, ok},
		"no-store":       {[]string{"no-store"}, []string{"no-store"}, ok},
		"in part":        {[]string{`private="X-A, X-B", immutable`}, []string{"private, immutable"}, ok},
		"sends a status": {[]string{"public"}, []string{"private"}, func(c Context) { c.Reply(204, "") }},
		"fails":          {[]string{"public"}, []string{"private"}, func(c Context) { c.Reply(404, "no") }},
		"writes nothing": {[]string{"public"}, []string{"private"}, func(Context) {}},
		"sets cookies anew": {nil, []string{"private"}, func(c Context) {
			c.Writer().Header().Set("Set-Cookie", "")
			delete(c.Writer().Header(), "Set-Cookie")
			ok(c)
		}},
		"flushes": {[]string{"public"}, []string{"private"}, func(c Context) {
			_ = http.NewResponseController(c.Writer()).Flush()
		}},
	} {
		s.sub(name, func(s *scene) {
			app, _ := s.shop(func(x Context) {
				x.Writer().Header()["Cache-Control"] = slices.Clone(c.says)
				x.Writer().Header().Set("CDN-Cache-Control", "max-age=60")
				c.handler(x)
			}, s.room(waitingroom.Options{Capacity: 1}))
			w := visit(app, http.MethodGet, "")
			pass, h := s.ticketOf(w), w.Result().Header
			if got := h.Values("Cache-Control"); !slices.Equal(got, c.want) || h.Get("CDN-Cache-Control") != "" {
				s.Errorf("%v, want %q", h, c.want)
			}
			w = visit(app, http.MethodGet, pass)
			h = w.Result().Header
			if got := h.Values("Cache-Control"); !slices.Equal(got, c.says) || h.Get("CDN-Cache-Control") == "" ||
				h.Get("Set-Cookie") != "" {
				s.Errorf("with a pass: %v, want %q", h, c.says)
			}
		})
	}
}

// passesOutlastRefusals: who is let in keeps the pass, if a rule inside refuses them, in the same
// middleware or in another one.
func passesOutlastRefusals(s *scene) {
	for _, apart := range []bool{false, true} {
		s.sub(strconv.FormatBool(apart), func(s *scene) {
			room := s.room(waitingroom.Options{Capacity: 1})
			sale := claim(s.sale("sale", seckill.Sale{Stock: 1}))
			app := onThings(ok, room, sale)
			if apart {
				app = onThings(ok, sale)
				app.Use = [][]pipeline.Rule{{room}}
			}
			shop := s.framework.Build(app)
			pass := s.ticketOf(visit(shop, http.MethodPost, ""))
			if err := leave(s, room, pass); err != nil {
				s.Fatal(err)
			}
			refused := visit(shop, http.MethodPost, "", "X-User: bob")
			if refused.Code != http.StatusConflict {
				s.Fatalf("%d %s", refused.Code, refused.Body)
			}
			if pass = s.ticketOf(refused); visit(shop, http.MethodPost, pass, "X-User: bob").Code != 409 {
				s.Error("with the pass the visitor waits")
			}
			if got := refused.Result().Header.Values("Cache-Control"); !slices.Equal(got, []string{"no-store"}) {
				s.Errorf("Cache-Control %q", got)
			}
		})
	}
}

// leave ends a pass.
func leave(s *scene, room pipeline.Rule, pass string) error {
	who, err := room.Who(&keyfuncs.Request{Request: request(http.MethodGet, thing)})
	if err != nil {
		return err
	}
	g, _ := room.Guard.(*waitingroom.Guard)
	return g.Leave(s.Context(), core.Decision{Attempt: core.Attempt{Actor: who, Token: pass}})
}

// pagesOfTheApplicationForWhoWaits: Rule.Answer has the place, the status, and the ticket set already.
func pagesOfTheApplicationForWhoWaits(s *scene) {
	room := s.room(waitingroom.Options{Capacity: 1, Opens: time.Now().Add(time.Hour)})
	room.Answer = func(w http.ResponseWriter, _ *http.Request, refusal *answers.Refusal) {
		place, ok := waitingroom.PlaceOf(refusal.Decision)
		w.WriteHeader(refusal.Status)
		write(w, place.State+" "+strconv.FormatBool(ok))
	}
	app, _ := s.shop(ok, room)
	w := visit(app, http.MethodGet, "", acceptPage, "Sec-Fetch-Mode: navigate")
	if h := w.Result().Header; w.Code != 200 || w.Body.String() != "lobby true" || s.ticketOf(w) == "" ||
		h.Get("X-Robots-Tag") != "noindex" || h.Get("Retry-After") == "" || h.Get("Cache-Control") != "no-store" {
		s.Errorf("%d %v %s", w.Code, h, w.Body)
	}
}

// ticketsOnThisMachine: not all browsers take Secure cookies by HTTP, so development has one without.
func ticketsOnThisMachine(s *scene) {
	app, _ := s.shop(ok, s.room(waitingroom.Options{Capacity: 1}))
	srv := s.serve(app)
	in := srv.do(s.Context(), http.MethodGet)
	set := in.Header.Get("Set-Cookie")
	pass, _, _ := strings.Cut(set, ";")
	if !strings.HasPrefix(set, "gatehouse-shop=") || strings.Contains(set, "Secure") ||
		!strings.Contains(set, "HttpOnly") {
		s.Errorf("the cookie is %q", set)
	}
	if again := srv.do(s.Context(), http.MethodGet, "Cookie: "+pass); again.StatusCode != http.StatusOK {
		s.Errorf("with the pass: %d %s", again.StatusCode, again.body)
	}
	if other := srv.do(s.Context(), http.MethodGet, "X-Forwarded-Proto: https"); !strings.HasPrefix(
		other.Header.Get("Set-Cookie"), tokenCookie+"=") {
		s.Errorf("behind a proxy: %v", other.Header)
	}
}
