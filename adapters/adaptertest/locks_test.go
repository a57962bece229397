package adaptertest

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core/lock"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

var locked = problem(409, "busy", "Busy", "Somebody else is working on this. Try again in a moment.", "")

// Promise (Lock): A request holds its lock until its handler has returned. Its context has the fence.
func TestALockIsHeldWhileTheRequestRuns(t *testing.T) { onRedis(t, locksAreHeld) }

// locksAreHeld while a request runs: another one is refused meanwhile, and not afterwards. Each handler finds
// the fence of its own request.
func locksAreHeld(s *scene) {
	s.gate = newEngine(s.backend.Client, s.backend.Prefix, guardtest.WithClock(guardtest.NewClock()))
	g := s.lock() // which the clock does not end, so that Retry-After is all of the lease
	entered, leave := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	var fences []int64
	app := s.framework.Build(onThings(func(c Context) {
		fence, found := lock.Fence(c.Request().Context())
		d, _ := c.Decision("thing")
		if same, known := g.Fence(d); !found || !known || same != fence || fence <= 0 {
			s.Errorf("the fence %d, %v, of the decision %d", fence, found, same)
		}
		mu.Lock()
		fences = append(fences, fence)
		mu.Unlock()
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
	again := send(app, request(http.MethodPost, thing))
	if again.Code != http.StatusConflict || again.Header().Get("Retry-After") != "60" ||
		again.Body.String() != locked || again.Header().Get("RateLimit") != "" {
		s.Errorf("%d %v %s: want 409 busy", again.Code, again.Header(), again.Body)
	}
	if w := send(app, request(http.MethodPost, strings.Replace(thing, "t1", "t2", 1))); w.Code != http.StatusOK {
		s.Errorf("another thing: %d %s", w.Code, w.Body)
	}
	close(leave)
	if w := <-first; w.Code != http.StatusOK {
		s.Errorf("%d %s", w.Code, w.Body)
	}
	if w := send(app, request(http.MethodPost, thing)); w.Code != http.StatusOK {
		s.Errorf("afterwards: %d %s", w.Code, w.Body)
	}
	if len(fences) != 3 || fences[2] <= fences[0] {
		s.Errorf("the fences %v", fences)
	}
	s.wantUnlocked(g)
}

// Promise (Lock): The context of a request ends with `lock.ErrLost` when its lock is lost.
func TestALostLockEndsTheContext(t *testing.T) { onRedis(t, lostLocksEndTheContext) }

// lostLocksEndTheContext of the request, with a cause; where the rule is in the shadow there is no fence.
func lostLocksEndTheContext(s *scene) {
	for _, shadowed := range []bool{false, true} {
		s.sub(map[bool]string{false: "enforced", true: "shadowed"}[shadowed], func(s *scene) {
			// Redis keeps the lock until it is broken, however late that is. The holder asks each second.
			s.gate = newEngine(s.backend.Client, s.backend.Prefix, guardtest.WithClock(guardtest.NewClock()))
			g := lock.New(s.gate, "thing", lock.Options{Lease: 3 * time.Second})
			rule := claim(g)
			if shadowed {
				rule.Rollout = pipeline.Shadow()
			}
			app := s.framework.Build(onThings(func(c Context) {
				ctx := c.Request().Context()
				if _, found := lock.Fence(ctx); found == shadowed {
					s.Errorf("a fence: %v", found)
				}
				if broken, err := g.Break(s.Context(), "t1"); err != nil || !broken {
					s.Errorf("%v, %v: want the lock broken", broken, err)
				}
				if !shadowed {
					select {
					case <-ctx.Done():
					case <-time.After(time.Minute): // it does not end
					}
					if cause := context.Cause(ctx); !errors.Is(cause, lock.ErrLost) {
						s.Errorf("the context of the request ended with %v", cause)
					}
				}
				ok(c)
			}, rule))
			if w := send(app, request(http.MethodPost, thing)); w.Code != http.StatusOK {
				s.Errorf("%d %s", w.Code, w.Body)
			}
			s.wantUnlocked(g)
		})
	}
}
