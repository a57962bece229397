package adaptertest

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/pipeline"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// page is the standard refusal as a page.
func page(lang, title, detail string) string {
	return "<!DOCTYPE html>\n<html lang=\"" + lang + "\">\n<head>\n<meta charset=\"utf-8\">\n" +
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" + title + "</title>\n" +
		"<style>:root{color-scheme:light dark}" +
		"body{font:1rem/1.6 system-ui,sans-serif;max-width:34rem;margin:12vh auto;padding:0 1.25rem;" +
		"overflow-wrap:break-word}h1{font-size:1.6rem;line-height:1.25}" +
		"time,[role=timer]{font-weight:600;font-variant-numeric:tabular-nums}" +
		"a:not([hidden]){display:inline-block;padding:.3rem 0}" +
		"a:focus-visible{outline:3px solid;outline-offset:3px}" +
		"</style>\n</head>\n" +
		"<body>\n<main dir=\"auto\">\n<h1>" + title + "</h1>\n<p>" + detail + "</p>\n" +
		"</main>\n</body>\n</html>\n"
}

func formsAsAccepted(s *scene) {
	const asJSON, asText, asPage = "application/problem+json", "text/plain; charset=utf-8",
		"text/html; charset=utf-8"
	bodies := map[string]string{
		asJSON: soldOut,
		asText: "Sold Out\n\nSold out.\n",
		asPage: page("en", "Sold out", "Everything is sold or reserved at the moment."),
	}
	rule := claim(s.sale("sale", seckill.Sale{Stock: 1}))
	app := s.framework.Build(App{Routes: []Route{
		{Method: http.MethodPost, Path: "/things/{thing}", Rules: []pipeline.Rule{rule}, Handler: ok},
		{Method: http.MethodHead, Path: "/things/{thing}", Rules: []pipeline.Rule{rule}, Handler: ok},
	}})
	s.wantPosts(app, thing, []string{"X-User: bob"}, 200)
	for accept, want := range map[string]string{
		"":                                  asJSON,
		"*/*":                               asJSON, // curl
		"application/json, text/plain, */*": asJSON, // axios
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": asPage, // browsers
		"text/html, */*; q=0.01": asPage,
		"text/*":                 asText,
		"image/avif,image/webp":  asJSON, // none of ours, so the standard one
	} {
		for _, method := range []string{http.MethodPost, http.MethodHead} {
			w := send(app, request(method, thing, "Accept:"+accept))
			header, body := w.Result().Header, bodies[want]
			if header.Get("Content-Type") != want || header.Get("Content-Length") != fmt.Sprint(len(body)) ||
				header.Get("Vary") != "Accept" || header.Get("Cache-Control") != "no-store" ||
				w.Code != http.StatusConflict {
				s.Errorf("%s, Accept %q: %d %v, want %s", method, accept, w.Code, header, want)
			}
			if csp := header.Get("Content-Security-Policy"); strings.HasPrefix(csp,
				"default-src 'none';") != (want == asPage) {
				s.Errorf("%s, Accept %q: Content-Security-Policy %q", method, accept, csp)
			}
			if method == http.MethodHead {
				body = ""
			}
			if w.Body.String() != body {
				s.Errorf("%s, Accept %q:\n%s\nwant:\n%s", method, accept, w.Body, body)
			}
		}
	}
}

// answersOfTheRule plays answers of the application's own, behind a vote that has to be given back in any
// case.
// write writes to a client who is there.
func write(w http.ResponseWriter, body string) { _, _ = w.Write([]byte(body)) }

// hook is an application's own answer.
type hook = func(http.ResponseWriter, *http.Request, *answers.Refusal)

var standardRefusal = golden{http.StatusTooManyRequests, "60", limited}

var ownRefusal = golden{http.StatusTeapot, "60", "own limited"}

// ownAnswers are answers that a rule's Answer writes, and what the client hears.
var ownAnswers = []struct {
	name   string
	hook   hook
	want   golden
	panics any
}{
	{"written", func(w http.ResponseWriter, _ *http.Request, refusal *answers.Refusal) {
		w.WriteHeader(http.StatusTeapot)
		write(w, "own "+string(refusal.Reason))
	}, ownRefusal, nil},
	{"without a status", func(w http.ResponseWriter, _ *http.Request, _ *answers.Refusal) { write(w, "own") },
		golden{http.StatusOK, "60", "own"}, nil},
	{"without a body", func(w http.ResponseWriter, _ *http.Request,
		_ *answers.Refusal) {
		w.WriteHeader(http.StatusTeapot)
	},
		golden{http.StatusTeapot, "60", ""}, nil},
	{"flushed", func(w http.ResponseWriter, _ *http.Request, _ *answers.Refusal) {
		w.WriteHeader(http.StatusTeapot)
		if err := http.NewResponseController(w).Flush(); err != nil {
			panic(err)
		}
		write(w, "own limited")
	}, ownRefusal, nil},
	{"a redirect", func(w http.ResponseWriter, r *http.Request, _ *answers.Refusal) {
		w.Header().Set("Content-Type", "text/plain") // else there is a body
		http.Redirect(w, r, "/wait", http.StatusSeeOther)
	}, golden{http.StatusSeeOther, "60", ""}, nil},
	{"a field changed", func(w http.ResponseWriter, _ *http.Request, refusal *answers.Refusal) {
		w.Header().Set("Retry-After", fmt.Sprint(2*refusal.RetryAfter().Seconds()))
		w.WriteHeader(http.StatusTeapot)
	}, golden{http.StatusTeapot, "120", ""}, nil},
	{"nothing written", func(http.ResponseWriter, *http.Request, *answers.Refusal) {}, standardRefusal, nil},
	{"only a header", func(w http.ResponseWriter, _ *http.Request, _ *answers.Refusal) {
		w.Header().Set("Content-Type", "text/css")
	}, standardRefusal, nil},
	{"Reply", func(w http.ResponseWriter, r *http.Request, refusal *answers.Refusal) { refusal.Reply(w, r) },
		standardRefusal, nil},
	{"Answer, once more", func(w http.ResponseWriter, r *http.Request,
		refusal *answers.Refusal) {
		refusal.Answer(w, r)
	}, standardRefusal, nil},
	{"panic", func(http.ResponseWriter, *http.Request, *answers.Refusal) { panic("lost") }, golden{}, "lost"},
	{"panic to abort", func(http.ResponseWriter, *http.Request,
		*answers.Refusal) {
		panic(http.ErrAbortHandler)
	},
		golden{}, http.ErrAbortHandler},
	{"hijacked", func(w http.ResponseWriter, _ *http.Request, _ *answers.Refusal) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer func() { _ = conn.Close() }() // it has been flushed
		_, _ = io.WriteString(conn,
			"HTTP/1.1 418 I'm a teapot\r\nRetry-After: 60\r\nContent-Length: 11\r\n\r\nown limited")
	}, ownRefusal, nil},
}

func answersOfTheRule(s *scene) {
	for _, c := range ownAnswers {
		s.sub(c.name, func(s *scene) {
			s.clock(noon)
			votes := votes.New(s.gate, "vote", votes.Options{})
			rule := rate(limit.NewSlidingWindow(s.gate, "limit", limit.PerMinute(1)))
			app := onThings(ok, rule)
			s.wantPosts(s.framework.Build(app), thing, nil, 200)

			rule.Answer = c.hook
			ran := false
			srv := s.serve(s.framework.Build(onThings(func(c Context) { ran = true; ok(c) }, vote(votes), rule)))
			answer := srv.do(s.Context(), http.MethodPost)
			if value := srv.wait(); value != c.panics {
				s.Errorf("the outer recoverer gets %v, want %v", value, c.panics)
			}
			if c.panics == nil {
				if answer.cut || answer.StatusCode != c.want.status || answer.body != c.want.body ||
					answer.Header.Get("Retry-After") != c.want.retry {
					s.Errorf("%+v, want %+v", answer, c.want)
				}
				if c.name != "hijacked" {
					s.wantFigures(answer.Header, []string{`"limit";q=1;w=60`}, []string{`"limit";r=0;t=60`})
				}
			} else if !answer.cut {
				s.Errorf("the client got %+v", answer)
			}
			if ran {
				s.Error("the handler ran")
			}
			s.wantTally(votes, nil)
		})
	}

	s.sub("with the framework's recoverer", answersOfTheRuleWithTheFrameworksRecoverer)

	s.sub("sees the decision", answersOfTheRuleSeesTheDecision)
}

func answersOfTheRuleSeesTheDecision(s *scene) {
	rule := vote(votes.New(s.gate, "vote", votes.Options{}))
	rule.Answer = func(w http.ResponseWriter, r *http.Request, refusal *answers.Refusal) {
		w.WriteHeader(refusal.Status)
		write(w, strings.Join(votes.Choices(refusal.Decision), ",")+" "+r.Method)
	}
	app := s.framework.Build(onThings(ok, rule))
	s.wantPosts(app, thing, nil, 200)
	if w := send(app, request(http.MethodPost, thing, "X-Choice: blue")); w.Code != 409 ||
		w.Body.String() != "red POST" {
		s.Errorf("%d %s", w.Code, w.Body)
	}
}

func answersOfTheRuleWithTheFrameworksRecoverer(s *scene) {
	votes := votes.New(s.gate, "vote", votes.Options{})
	refused := claim(&stub{name: "own", check: refusing("own", "members_only")})
	refused.Answer = func(http.ResponseWriter, *http.Request, *answers.Refusal) { panic("lost") }
	ran := false
	app := onThings(func(c Context) { ran = true; ok(c) }, vote(votes), refused)
	app.Recover = RecoverOutside
	s.wantPosts(s.framework.Build(app), thing, nil, 500)
	if ran {
		s.Error("the handler ran")
	}
	s.wantTally(votes, nil)
}
