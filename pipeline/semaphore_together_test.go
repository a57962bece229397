package pipeline_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// exports makes a semaphore.
func (p *process) exports(most int64) *semaphore.Guard {
	return semaphore.New(p.Engine, "exports", semaphore.Options{Max: most})
}

// perThing makes a rule of a semaphore for the pool of a name.
func perThing(g *semaphore.Guard, name string) pipeline.Rule {
	return pipeline.Rule{Guard: g, Who: keyfuncs.Const("worker"), What: keyfuncs.Const(name)}
}

// wantHeld wants so many permits of the pool ann to be held.
func wantHeld(t *testing.T, g *semaphore.Guard, want int64) {
	t.Helper()
	if s, err := g.Peek(t.Context(), core.Attempt{Resource: "ann"}); err != nil || s.Held != want {
		t.Errorf("%+v, %v: want %d permits held", s, err, want)
	}
}

// TestALimitAndASemaphoreCostOneRoundTrip, in either order: each was asked when the one in front had
// answered.
func TestALimitAndASemaphoreCostOneRoundTrip(t *testing.T) {
	eachClient(t, func(t *testing.T, b redistest.Backend, obeys bool) {
		p := newProcess(t, b, obeys, core.WithPrefix(fmt.Sprint(b.Prefix, obeys)))
		guards, exports := p.windows("a", 100), p.exports(5)
		p.ready(t, guards...)
		rules := append(perActor(guards, "ann"), perThing(exports, "ann")) // one slot
		for _, rules := range [][]pipeline.Rule{rules, {rules[1], rules[0]}} {
			wantStatus(t, nethttpmw.HTTP(rules...)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				p.want(t, 1, "the checks")
				wantHeld(t, exports, 1)
				p.n.Store(0)
			})), 200)
			p.want(t, 1, "the release")
		}
		wantHeld(t, exports, 0)
		wantUsed(t, guards[0], "ann", 2)
	})
}

// TestALimitThatRefusesTakesNoPermitsFromOthers: the process expects the limit to allow the first request, so
// that takes a permit for a moment. The flood that follows takes none.
func TestALimitThatRefusesTakesNoPermitsFromOthers(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		p, other := newProcess(t, b, true), newProcess(t, b, true)
		guards, exports := p.windows("a", 9), p.exports(2)
		p.ready(t, guards...)
		for range 9 {
			guardtest.Check(t, other.windows1(t, "a", 9), core.Attempt{Actor: "ann"})
		}
		app := answering(200, append(perActor(guards, "ann"), perThing(exports, "ann"))...)
		wantStatus(t, app, 429)
		p.want(t, 2, "a refusal that the process did not expect, and the permit")
		p.wantSeen(t, "a check")
		wantHeld(t, exports, 0)
		p.seen()
		p.n.Store(0)
		for range 20 {
			wantStatus(t, app, 429)
			p.want(t, 1, "a refusal that the process expects")
			p.wantSeen(t, "a check")
		}
		wantUsed(t, guards[0], "ann", 9)
	})
}

// TestASemaphoreThatRunsLowIsAskedInTurn: a permit that is taken for a moment would be what others need. So
// is one whose attempts wait.
func TestASemaphoreThatRunsLowIsAskedInTurn(t *testing.T) {
	b := redistest.Mini(t)
	p := newProcess(t, b, true)
	guards, exports := p.windows("a", 100), p.exports(3)
	patient := semaphore.New(p.Engine, "patient", semaphore.Options{Max: 3, Wait: time.Second})
	p.ready(t, guards...)
	rules := append(perActor(guards, "ann"), perThing(exports, "ann"))
	var held []core.Decision
	for taken := range 3 { // by others of the process
		want := int64(2) // with the release
		if taken == 2 {
			want = 3 // the last permit is asked for in turn
		}
		wantStatus(t, answering(200, rules...), 200)
		p.want(t, want, fmt.Sprint(taken, " permits taken"))
		held = append(held, guardtest.Check(t, exports, core.Attempt{Actor: "worker", Resource: "ann"}))
		p.n.Store(0)
	}
	wantStatus(t, answering(200, rules...), 429)
	p.want(t, 3, "a refusal") // the limit, then the semaphore, then back to the limit
	for _, d := range held {
		guardtest.Settle(t, exports, d, core.Commit)
	}
	p.n.Store(0)
	wantStatus(t, answering(200, rules...), 200)
	p.want(t, 2, "all permits are free again")
	wantStatus(t, answering(200, rules[0], perThing(patient, "ann")), 200)
	p.want(t, 3, "a semaphore whose attempts wait")
	wantUsed(t, guards[0], "ann", 5)
}

// TestASemaphoreThatIsAskedInItsTurnKeepsNoPlace: each request that found it low would have left one of the
// places of the process, until claims were refused.
func TestASemaphoreThatIsAskedInItsTurnKeepsNoPlace(t *testing.T) {
	b := redistest.Mini(t)
	p := newProcess(t, b, true)
	guards, exports := p.windows("a", 100), p.exports(1) // one permit is always asked for in turn
	p.ready(t, guards...)
	places := make([]core.Place, core.PendingMost-8)
	for i := range places {
		if err := places[i].Take(); err != nil {
			t.Fatal(err)
		}
		defer places[i].Free()
	}
	app := answering(200, append(perActor(guards, "ann"), perThing(exports, "ann"))...)
	for range 20 {
		wantStatus(t, app, 200)
	}
	p.want(t, 60, "20 requests, each check by itself")
}

// TestASemaphoreInsideTheProcessIsAskedInTurn: it has no round trip to share.
func TestASemaphoreInsideTheProcessIsAskedInTurn(t *testing.T) {
	b := redistest.Mini(t)
	p := newProcess(t, b, true)
	exports := semaphore.New(core.NewMemory(), "exports", semaphore.Options{Max: 3})
	empty := limit.NewSlidingWindow(p.Engine, "a", limit.PerHour(1))
	p.ready(t, empty)
	guardtest.Check(t, empty, core.Attempt{Actor: "ann"})
	rules := []pipeline.Rule{perThing(exports, "ann"), {Guard: empty, Who: keyfuncs.Const("ann")}}
	wantStatus(t, answering(200, rules...), 429)
	wantStatus(t, answering(200, rules[1], rules[0]), 429)
	wantHeld(t, exports, 0)
}

// TestABurstOfOneUserStarvesNobody: of 500 requests of one user at one moment 10 pass, and take nothing of
// what nine others share with them. Package adaptertest has it over HTTP.
//
// Promise: A burst of one user takes nothing from a limit that others share.
func TestABurstOfOneUserStarvesNobody(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		p := newProcess(t, b, true)
		for round := range 5 {
			t.Run(fmt.Sprint("a limit ", round), func(t *testing.T) {
				burst(t, p, limit.NewSlidingWindow(p.Engine, fmt.Sprint("all", round), limit.PerHour(60)), round)
			})
			t.Run(fmt.Sprint("a semaphore ", round), func(t *testing.T) {
				burst(t, p, semaphore.New(p.Engine, fmt.Sprint("permits", round), semaphore.Options{Max: 60}), round+5)
			})
		}
	})
}

// burst sends the requests through a limit of 10 per user and the guard, which has room for 52 of them and
// an eighth of its own.
func burst(t *testing.T, p *process, all core.Guard, round int) {
	user := limit.NewSlidingWindow(p.Engine, fmt.Sprint("user", round), limit.PerHour(10))
	app := answering(200, pipeline.Rule{Guard: user, Who: keyfuncs.Header("X-User")},
		pipeline.Rule{Guard: all, Who: keyfuncs.Const("all"), What: keyfuncs.Const("all")})
	var passed, others atomic.Int64
	var sent sync.WaitGroup
	begin := make(chan struct{})
	send := func(user string, count *atomic.Int64) {
		sent.Go(func() {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.Header.Set("X-User", user)
			<-begin
			w := httptest.NewRecorder()
			if app.ServeHTTP(w, r); w.Code == http.StatusOK {
				count.Add(1)
			}
		})
	}
	for i := range 500 {
		send("ann", &passed)
		if i%12 == 0 {
			send(fmt.Sprint("user", i/12%9), &others)
		}
	}
	close(begin)
	sent.Wait()
	if passed.Load() != 10 || others.Load() != 42 {
		t.Errorf("ann passed %d times, the others %d times, want 10 and 42", passed.Load(), others.Load())
	}
}
