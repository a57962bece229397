package adaptertest

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

func TestAForgedPreflightClaimsNothingAndGetsNothing(t *testing.T) {
	onRedis(t, forgedPreflightsGetNothing)
}

// forgedPreflightsGetNothing plays a route that takes any method: with a stock of 1 and a limit of 2, ten
// forged preflights were told that they had bought it, and 0 were sold.
func forgedPreflightsGetNothing(s *scene) {
	handled := 0
	app := func(rules ...pipeline.Rule) http.Handler {
		return s.framework.Build(App{Routes: []Route{{Method: http.MethodOptions, Path: "/things/{thing}",
			Rules: rules, Handler: func(c Context) { handled++; c.Reply(http.StatusCreated, "bought") }}}})
	}
	send := func(app http.Handler, want int) {
		s.Helper()
		r := request(http.MethodOptions, thing, "Origin: https://shop.example", "Access-Control-Request-Method: POST")
		if w := send(app, r); w.Code != want {
			s.Errorf("%d %s, want %d", w.Code, w.Body, want)
		}
	}
	purchase := s.sale("sale", seckill.Sale{Stock: 1})
	limited := rate(limit.NewSlidingWindow(s.gate, "site", limit.PerHour(2)))
	for range 10 {
		send(app(limited, claim(purchase)), http.StatusForbidden)
	}
	permits := semaphore.New(s.gate, "exports", semaphore.Options{Max: 1})
	send(app(claim(permits)), http.StatusForbidden)
	s.wantSale(purchase, 1, 0, 0)
	if handled != 0 {
		s.Errorf("the handler ran %d times", handled)
	}
	counting := claim(purchase)
	counting.CountPreflights = true
	send(app(counting), http.StatusCreated)
	send(app(counting), http.StatusConflict)
	s.wantSale(purchase, 0, 0, 1)
	for range 3 { // a limit claims nothing
		send(app(limited), http.StatusCreated)
	}
}

func TestPagesOfOtherOriginsReadTheFigures(t *testing.T) { onMini(t, pagesOfOtherOriginsRead) }

// pagesOfOtherOriginsRead plays a CORS middleware inside of rules, however the handler ends. Plain limits,
// which do not look at the response otherwise, exposed nothing.
func pagesOfOtherOriginsRead(s *scene) {
	const origin = "Origin: https://shop.example"
	exposed := []string{"RateLimit", "RateLimit-Policy"}
	for name, handler := range map[string]func(Context){
		"answers":                   ok,
		"sends a status":            func(c Context) { c.Reply(http.StatusNoContent, "") },
		"fails":                     func(c Context) { c.Reply(http.StatusTeapot, "no") },
		"writes past the framework": func(c Context) { _, _ = c.Writer().Write([]byte("done")) },
		"flushes":                   func(c Context) { _ = http.NewResponseController(c.Writer()).Flush() },
		"writes nothing":            func(Context) {},
		"panics":                    func(Context) { panic("of the handler") },
	} {
		s.sub(name, func(s *scene) {
			plain := rate(limit.NewSlidingWindow(s.gate, "site", limit.PerHour(9)))
			settling := vote(votes.New(s.gate, "vote", votes.Options{Poll: votes.Poll{PerVoter: 9}}))
			for _, c := range []struct {
				name  string
				rules []pipeline.Rule
				from  string
				want  []string
			}{
				{"plain", []pipeline.Rule{plain}, origin, exposed},
				{"plain, no page", []pipeline.Rule{plain}, "Origin:", nil}, // the response is not looked at
				{"settling", []pipeline.Rule{plain, settling}, origin, exposed},
			} {
				app := onThings(func(c Context) { // the CORS middleware, and the handler
					c.Writer().Header().Set("Access-Control-Allow-Origin", "https://shop.example")
					handler(c)
				}, c.rules...)
				app.Recover = RecoverOutside
				w := send(s.framework.Build(app), request(http.MethodPost, thing, c.from, "X-Choice: "+c.name))
				wantExposed(s.T, c.name, w.Result().Header, c.want)
			}
		})
	}
}

func wantExposed(t *testing.T, name string, h http.Header, want []string) {
	t.Helper()
	got := h.Values("Access-Control-Expose-Headers")
	if len(got) > 0 {
		got = strings.Split(strings.Join(got, ", "), ", ")
	}
	if slices.Sort(got); !slices.Equal(got, want) || h.Get("RateLimit") == "" {
		t.Errorf("%s: exposed are %q of %v, want %q", name, got, h, want)
	}
}
