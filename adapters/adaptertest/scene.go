package adaptertest

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/core/quota"
	"github.com/gatehouse-go/gatehouse/core/redpacket"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// scene is the environment of one check: a framework, a Redis and a separate engine.
type scene struct {
	*testing.T
	framework Framework
	start     func(testing.TB) redistest.Backend
	backend   redistest.Backend
	gate      *core.Engine
	http2     bool // servers speak HTTP/2 only, without TLS
}

func newScene(t *testing.T, f Framework, start func(testing.TB) redistest.Backend) *scene {
	t.Helper()
	b := start(t)
	return &scene{T: t, framework: f, start: start, backend: b, gate: newEngine(b.Client, b.Prefix)}
}

// newEngine makes an engine with a deadline that suits a busy machine, and that does not log the outages
// which checks cause on purpose.
func newEngine(rdb script.Client, prefix string, options ...core.Option) *core.Engine {
	return core.New(rdb, append([]core.Option{core.WithPrefix(prefix), core.WithDeadline(time.Minute),
		core.WithObserver(ignore{})}, options...)...)
}

type ignore struct{}

func (ignore) Observe(context.Context, core.Event) {}

// sub runs f as a subtest on a separate scene, so that neither guards' names nor counts collide.
func (s *scene) sub(name string, f func(*scene)) {
	s.Helper()
	if s.framework.leavesOut(s, name) {
		return
	}
	s.Run(name, func(t *testing.T) { f(newScene(t, s.framework, s.start)) })
}

// clock sets the time for the scripts. Only miniredis has a clock that can be set.
func (s *scene) clock(now time.Time) { s.backend.Mini.SetTime(now) }

// thing is the path of most requests and the resource of their claims.
const thing = "/things/t1"

// onThings is an application with the one route that most checks need.
func onThings(handler func(Context), rules ...pipeline.Rule) App {
	return App{Routes: []Route{{Method: http.MethodPost, Path: "/things/{thing}", Rules: rules,
		Handler: handler}}}
}

func ok(c Context) { c.Reply(http.StatusOK, "done") }

// claim is a rule of a guard, for a thing and the signed-in user.
func claim(g core.Guard) pipeline.Rule {
	return pipeline.Rule{
		Guard: g,
		Who:   keyfuncs.User(UserKey),
		What:  keyfuncs.Param("thing"),
		ID:    keyfuncs.IdempotencyKey(),
	}
}

// vote is claim for a guard that also needs a choice, or another item.
func vote(g core.Guard) pipeline.Rule {
	rule := claim(g)
	rule.Which = keyfuncs.Header("X-Choice")
	return rule
}

// limit is a rule that counts the signed-in user's requests.
func rate(g core.Guard) pipeline.Rule {
	return pipeline.Rule{Guard: g, Who: keyfuncs.User(UserKey)}
}

// sale opens a sale of the thing and returns its guard.
func (s *scene) sale(name string, sale seckill.Sale) *seckill.Guard {
	s.Helper()
	g := seckill.New(s.gate, name, seckill.Options{})
	if opened, err := g.Open(s.Context(), "t1", sale); err != nil || !opened {
		s.Fatalf("Open: %v, %v", opened, err)
	}
	return g
}

// packet makes a packet of the thing and returns its guard.
func (s *scene) packet(p redpacket.Packet) *redpacket.Guard {
	s.Helper()
	g := redpacket.New(s.gate, "packet", redpacket.Options{})
	if created, err := g.Create(s.Context(), "t1", p); err != nil || !created {
		s.Fatalf("Create: %v, %v", created, err)
	}
	return g
}

// quota makes a quota of this many different items per period.
func (s *scene) quota(items int, period period.Period) *quota.Guard {
	return quota.New(s.gate, "quota", quota.Options{Items: items, Period: period})
}

// oneEra is a period that does not end during a check.
func oneEra(time.Time) (begins, ends time.Time) {
	return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
}

// request makes a request of the user ann, who chooses red, unless the headers, each "Name: value", say
// otherwise. One without a value is left out.
func request(method, path string, headers ...string) *http.Request {
	r := httptest.NewRequestWithContext(context.Background(), method, path, nil)
	set(r.Header, headers)
	return r
}

func set(h http.Header, headers []string) {
	h.Set(UserHeader, "ann")
	h.Set("X-Choice", "red")
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ":")
		if value = strings.TrimSpace(value); value == "" {
			h.Del(name)
		} else {
			h.Set(name, value)
		}
	}
}

// send lets the application answer a request without a network in between.
func send(app http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	app.ServeHTTP(w, r)
	return w
}

// wantPosts posts once for each status, with the same headers, and wants it.
func (s *scene) wantPosts(app http.Handler, path string, headers []string, statuses ...int) {
	s.Helper()
	for i, want := range statuses {
		if w := send(app, request(http.MethodPost, path, headers...)); w.Code != want {
			s.Errorf("POST %s %q, time %d: %d %s, want %d", path, headers, i+1, w.Code, w.Body, want)
		}
	}
}

// wantTally wants these votes for the thing.
func (s *scene) wantTally(g *votes.Guard, want map[string]int64) {
	s.Helper()
	if tally, err := g.Tally(s.Context(), "t1"); err != nil || !maps.Equal(tally, want) {
		s.Errorf("the tally is %v, %v, want %v", tally, err, want)
	}
}

// wantUsed wants ann to have had these items of the thing.
func (s *scene) wantUsed(g *quota.Guard, want ...string) {
	s.Helper()
	if used, _, err := g.Used(s.Context(), core.Attempt{Actor: "ann", Resource: "t1"}); err != nil ||
		!slices.Equal(used, want) {
		s.Errorf("used are %q, %v, want %q", used, err, want)
	}
}

// wantSale wants the sale of the thing to have these units left, held and sold; together they must equal
// the stock.
func (s *scene) wantSale(g *seckill.Guard, left, held, sold int64) {
	s.Helper()
	status, err := g.Status(s.Context(), "t1")
	if want := (seckill.Status{Stock: left + held + sold, Left: left, Held: held, Sold: sold,
		Epoch: status.Epoch}); err != nil || status != want {
		s.Errorf("the sale is %+v, %v, want %+v", status, err, want)
	}
}

// wantGrabbed wants these users to have these amounts of the packet of the thing; together they must add
// up.
func (s *scene) wantGrabbed(g *redpacket.Guard, want map[string]int64) {
	s.Helper()
	if audit, err := g.Verify(s.Context(), "t1"); err != nil || !maps.Equal(audit.Grabbed, want) {
		s.Errorf("grabbed is %v, %v, want %v", audit.Grabbed, err, want)
	}
}

// times is a list of the same status, for wantPosts.
func times(n, status int) []int { return slices.Repeat([]int{status}, n) }
