package adaptertest

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
)

var busy = problem(429, "busy", "Busy", "Too many of these are running at once. Try again in a moment.", "")

func TestAPermitIsHeldWhileTheRequestRuns(t *testing.T) { onRedis(t, permitsAreHeld) }

// permitsAreHeld while a request runs: another one is refused meanwhile, and not afterwards.
func permitsAreHeld(s *scene) {
	s.gate = newEngine(s.backend.Client, s.backend.Prefix, guardtest.WithClock(guardtest.NewClock()))
	g := s.semaphore(1) // whose permits the clock does not end, so that Retry-After is all of the lease
	entered, leave := make(chan struct{}), make(chan struct{})
	app := s.framework.Build(onThings(func(c Context) {
		if c.Request().Header.Get("X-Choice") == "slow" {
			close(entered)
			<-leave
		}
		ok(c)
	}, claim(g)))
	var all sync.WaitGroup
	defer all.Wait()
	first := make(chan *httptest.ResponseRecorder, 1)
	all.Go(func() { first <- send(app, request(http.MethodPost, thing, "X-Choice: slow")) })
	<-entered
	const policy = `"exports";q=1;qu="concurrent-requests"`
	again := send(app, request(http.MethodPost, thing))
	if again.Code != http.StatusTooManyRequests || again.Header().Get("Retry-After") != "60" ||
		again.Body.String() != busy {
		s.Errorf("%d %v %s: want 429 busy", again.Code, again.Header(), again.Body)
	}
	s.wantFigures(again.Header(), []string{policy}, []string{`"exports";r=0;t=60`})
	close(leave)
	if w := <-first; w.Code != http.StatusOK {
		s.Errorf("%d %s", w.Code, w.Body)
	} else {
		s.wantFigures(w.Header(), []string{policy}, []string{`"exports";r=0`})
	}
	if w := send(app, request(http.MethodPost, thing)); w.Code != http.StatusOK {
		s.Errorf("afterwards: %d %s", w.Code, w.Body)
	}
	s.wantFree(g)
}
