package adaptertest

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
	"github.com/gatehouse-go/gatehouse/pipeline/deferred"
)

func TestADeferredRequestIsJudgedAsAtOnce(t *testing.T) { onRedis(t, laterIsJudgedAlike) }

// laterIsJudgedAlike sends requests past a redirect to https, a rule by address and a protection against
// requests of other sites: what runs later passes them, or is refused, as it would have been at once.
func laterIsJudgedAlike(s *scene) {
	var free atomic.Bool
	g := gateOf(&free)
	requests := deferred.New(delay.New(s.gate, "deferred", delay.Options{}), deferred.Options{
		Who: keyfuncs.User(UserKey), Limit: limit.NewSlidingWindow(s.gate, "stored", limit.PerHour(10)),
		Secrets: [][]byte{make([]byte, 32)},
	})
	rule := rate(g)
	rule.Defer = requests
	site := pipeline.Rule{
		Guard: limit.NewSlidingWindow(s.gate, "site", limit.PerHour(1000)),
		Who:   keyfuncs.IP(keyfuncs.TrustProxies("192.0.2.0/24"), keyfuncs.ReadHeader("CF-Connecting-IP")),
	}
	sites := http.NewCrossOriginProtection()
	var ran atomic.Int64
	app := onThings(func(c Context) {
		if err := sites.Check(c.Request()); err != nil {
			c.Reply(http.StatusForbidden, "another site")
			return
		}
		ran.Add(1)
		d, _ := c.Decision("site")
		c.Reply(http.StatusCreated, d.Attempt.Actor+" "+c.Request().Host+" "+c.Request().Header.Get("If-Match"))
	}, rule)
	app.Use = [][]pipeline.Rule{{site}}
	app.Routes = append(app.Routes, pageOf(requests))
	built := s.framework.Build(app)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Forwarded-Proto") != "https" {
			http.Redirect(w, r, "https://"+r.Host+r.RequestURI, http.StatusPermanentRedirect)
			return
		}
		built.ServeHTTP(w, r)
	})
	const https, client = "X-Forwarded-Proto: https", "CF-Connecting-IP: 203.0.113.7"
	var locations []string
	for _, from := range []string{"Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: cross-site",
		"Origin: https://evil.example"} {
		w := send(handler, request(http.MethodPost, thing, https, client, from, "If-Match: v1"))
		if w.Code != http.StatusAccepted {
			s.Fatalf("%s: %d %s", from, w.Code, w.Body)
		}
		locations = append(locations, w.Header().Get("Location"))
	}
	free.Store(true)
	defer s.work(requests, handler)()
	for i, want := range []string{"201 203.0.113.7 example.com v1", "403 another site", "403 another site"} {
		var w *httptest.ResponseRecorder
		redistest.Eventually(s.T, time.Minute, func() bool {
			w = send(handler, request(http.MethodGet, locations[i], https, client))
			return w.Code != http.StatusAccepted
		}, "the request has ended")
		if got := strconv.Itoa(w.Code) + " " + w.Body.String(); got != want ||
			w.Header().Get(deferred.StateHeader) != "done" {
			s.Errorf("%q, want %q: %v", got, want, w.Header())
		}
	}
	if ran.Load() != 1 {
		s.Errorf("%d requests ran, want one", ran.Load())
	}
}
