package conformance

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

var busy = problem(429, "busy", "Busy", "Too many of these are running at once. Try again in a moment.", "")

// semaphore makes a semaphore for the things, with this many permits.
func (s *scene) semaphore(most int64) *semaphore.Guard {
	return semaphore.New(s.gate, "exports", semaphore.Options{Max: most, Lease: 3 * time.Second})
}

// wantFree wants no permit of the thing to be held.
func (s *scene) wantFree(g *semaphore.Guard) {
	s.Helper()
	if state, err := g.Peek(s.Context(), core.Attempt{Resource: "t1"}); err != nil || state.Held != 0 {
		s.Errorf("%+v, %v: want no permit held", state, err)
	}
}

// permitsAreHeld while a request runs: another one is refused meanwhile, and not afterwards.
func permitsAreHeld(s *scene) {
	g := s.semaphore(1)
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
	if again.Code != http.StatusTooManyRequests || again.Header().Get("Retry-After") != "3" ||
		again.Body.String() != busy {
		s.Errorf("%d %v %s: want 429 busy", again.Code, again.Header(), again.Body)
	}
	s.wantFigures(again.Header(), []string{policy}, []string{`"exports";r=0;t=3`})
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

// lostPermitsEndTheContext of the request, with a cause; not where the rule is in the shadow.
func lostPermitsEndTheContext(s *scene) {
	for _, shadowed := range []bool{false, true} {
		s.sub(map[bool]string{false: "enforced", true: "shadowed"}[shadowed], func(s *scene) {
			g := semaphore.New(s.gate, "exports", semaphore.Options{Max: 1, Lease: time.Second})
			rule := claim(g)
			if shadowed {
				rule.Rollout = pipeline.Shadow()
			}
			app := s.framework.Build(onThings(func(c Context) {
				if _, err := g.Evict(c.Request().Context(), core.Attempt{Resource: "t1"}); err != nil {
					s.Error(err)
				}
				ctx := c.Request().Context()
				d, _ := c.Decision("exports")
				held, stop := g.Hold(ctx, d)
				defer stop()
				<-held.Done()
				if err := context.Cause(held); !errors.Is(err, semaphore.ErrLost) {
					s.Errorf("the context ended with %v", err)
				}
				if !shadowed {
					select {
					case <-ctx.Done():
					case <-time.After(10 * time.Second): // it does not end
					}
				}
				if cause := context.Cause(ctx); errors.Is(cause, semaphore.ErrLost) == shadowed {
					s.Errorf("the context of the request ended with %v", cause)
				}
				ok(c)
			}, rule))
			if w := send(app, request(http.MethodPost, thing)); w.Code != http.StatusOK {
				s.Errorf("%d %s", w.Code, w.Body)
			}
			s.wantFree(g)
		})
	}
}
