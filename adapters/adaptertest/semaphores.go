package adaptertest

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// semaphore makes a semaphore for the things, with this many permits.
func (s *scene) semaphore(most int64) *semaphore.Guard {
	return semaphore.New(s.gate, "exports", semaphore.Options{Max: most, Lease: time.Minute})
}

// wantFree wants no permit of the thing to be held.
func (s *scene) wantFree(g *semaphore.Guard) {
	s.Helper()
	if state, err := g.Peek(s.Context(), core.Attempt{Resource: "t1"}); err != nil || state.Held != 0 {
		s.Errorf("%+v, %v: want no permit held", state, err)
	}
}

// lostPermitsEndTheContext of the request, with a cause; not where the rule is in the shadow.
func lostPermitsEndTheContext(s *scene) {
	for _, shadowed := range []bool{false, true} {
		s.sub(map[bool]string{false: "enforced", true: "shadowed"}[shadowed], func(s *scene) {
			s.Parallel() // it waits for the holder to ask
			g := semaphore.New(s.gate, "exports", semaphore.Options{Max: 1, Lease: 3 * time.Second})
			rule := claim(g)
			if shadowed {
				rule.Rollout = pipeline.Shadow()
			}
			app := s.framework.Build(onThings(func(c Context) {
				if _, err := g.Evict(s.Context(), core.Attempt{Resource: "t1"}); err != nil {
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
					case <-time.After(time.Minute): // it does not end
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
