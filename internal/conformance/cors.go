package conformance

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
)

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
				rules []nethttpmw.Rule
				from  string
				want  []string
			}{
				{"plain", []nethttpmw.Rule{plain}, origin, exposed},
				{"plain, no page", []nethttpmw.Rule{plain}, "Origin:", nil}, // the response is not looked at
				{"settling", []nethttpmw.Rule{plain, settling}, origin, exposed},
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
