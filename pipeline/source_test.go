package pipeline_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// changing is a source whose pipeline a test changes.
type changing struct {
	atomic.Pointer[pipeline.Pipeline]
}

func (c *changing) Pipeline() *pipeline.Pipeline { return c.Load() }

// TestARequestPassesThePipelineOfTheMoment: and it is settled by that one, whatever is in force when it ends.
func TestARequestPassesThePipelineOfTheMoment(t *testing.T) {
	gate := core.NewMemory()
	slots := semaphore.New(gate, "slots", semaphore.Options{Max: 1})
	who := keyfuncs.Const("all")
	var rules changing
	rules.Store(pipeline.New(pipeline.Rule{Guard: slots, Who: who}))
	held := func() int64 {
		state, err := slots.Peek(t.Context(), core.Attempt{Actor: "all"})
		if err != nil {
			t.Fatal(err)
		}
		return state.Held
	}
	hour := limit.NewFixedWindow(gate, "hour", limit.PerHour(1))
	h := nethttpmw.Follow(&rules)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, ok := pipeline.Decision(r.Context(), "slots"); ok {
			if held() != 1 {
				t.Error("the first request holds no permit")
			}
			rules.Store(pipeline.New(pipeline.Rule{Guard: hour, Who: who}))
		}
	}))
	for i, want := range []int{200, 200, 429} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if w.Code != want {
			t.Errorf("request %d: got %d, want %d", i, w.Code, want)
		}
	}
	if held() != 0 {
		t.Error("the permit was not given back by the pipeline that took it")
	}
}

// TestFollowingNothing: a middleware without rules to follow would fail in the first request.
func TestFollowingNothing(t *testing.T) {
	guardtest.WantPanic(t, "no rules to follow", func() { nethttpmw.Follow(nil) })
	guardtest.WantPanic(t, "no rules to follow", func() { nethttpmw.Follow((*pipeline.Pipeline)(nil)) })
	guardtest.WantPanic(t, "no rules to follow", func() { nethttpmw.Follow(new(changing)) })
}
