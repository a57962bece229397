package operator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

// clock is a clock that tests move.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func figuresAt() (*Figures, *clock) {
	c := &clock{at: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
	return &Figures{now: c.now}, c
}

// observed tells of a check.
func (f *Figures) observed(guard string, d core.Decision, err error) {
	f.Observe(context.Background(), core.Event{Guard: guard, Op: "check", Decision: d, Err: err,
		Took: 300 * time.Microsecond})
}

func (f *Figures) hourOf(t *testing.T, guard string) hour {
	t.Helper()
	g, ok := f.guards.Load(guard)
	if !ok {
		t.Fatalf("nothing is known of %s", guard)
	}
	return g.(*guardFigures).hour(f.present())
}

func (f *Figures) actorsOf(guard string) []actor {
	g, ok := f.guards.Load(guard)
	if !ok {
		return nil
	}
	return g.(*guardFigures).actors.list(f.present())
}

func attempt(actor string) core.Attempt { return core.Attempt{Actor: actor} }

func TestFiguresCountTheLastHour(t *testing.T) {
	f, c := figuresAt()
	allowed := core.Decision{Allowed: true, Attempt: attempt("ann"), Source: core.SourceRedis}
	replayed := allowed
	replayed.Replayed = true
	refused := core.Decision{Reason: core.ReasonLimited, Attempt: attempt("ann"), Source: core.SourceRedis}
	shadow := refused
	shadow.Attempt.Shadow = true
	f.observed("site", allowed, nil) // will be forgotten
	c.move(30 * time.Minute)
	for range 3 {
		f.observed("site", allowed, nil)
	}
	f.observed("site", replayed, nil)
	f.observed("site", refused, nil)
	f.observed("site", shadow, nil)
	f.observed("site", core.Decision{}, errors.New("connection reset"))
	f.observed("site", core.Decision{}, context.Canceled) // the client hung up
	f.observed("site", core.Decision{}, core.ErrInvalid)  // the application's mistake
	f.Observe(t.Context(), core.Event{Guard: "site", Op: "refuse", Decision: core.Decision{Reason: "no_key"}})
	f.Observe(t.Context(), core.Event{Guard: "site", Op: "peek", Decision: allowed}) // decides nothing
	c.move(30 * time.Minute)
	h := f.hourOf(t, "site")
	if h.Allowed != 3 || h.Replayed != 1 || h.Refused != 2 || h.Shadow != 1 || h.Unavailable != 1 {
		t.Errorf("%+v", h)
	}
	if at := h.minutes[minutes-31]; at != (minuteSums{4, 2, 1}) {
		t.Errorf("half an hour ago: %+v", at)
	}
	if got := within(h.took, 0.5); got != 500*time.Microsecond {
		t.Errorf("half of the checks took %v, want the bound above 300 us", got)
	}
	if len(h.By) != 2 || h.By[0].Count != 1 || h.By[1].Count != 1 {
		t.Errorf("by reason: %v", h.By)
	}
	c.move(time.Hour)
	if h := f.hourOf(t, "site"); h.Allowed+h.Refused+h.Unavailable != 0 {
		t.Errorf("an hour later: %+v", h)
	}
}

// TestFiguresAfterTheClockWasSetBack: a minute whose place had a later one counted for that, and was never shown.
func TestFiguresAfterTheClockWasSetBack(t *testing.T) {
	f, c := figuresAt()
	allowed := core.Decision{Allowed: true, Attempt: attempt("ann"), Source: core.SourceRedis}
	f.observed("site", allowed, nil)
	for _, back := range []time.Duration{time.Hour, 24 * time.Hour} {
		c.move(-back)
		f.observed("site", allowed, nil)
		f.observed("site", allowed, nil)
		if h := f.hourOf(t, "site"); h.Allowed != 2 || h.minutes[minutes-1].allowed != 2 {
			t.Errorf("%v back: %d allowed", back, h.Allowed)
		}
	}
}

// TestALongNameIsLetIn: who has a name that was cut stayed banned on the page after the ban had been lifted.
func TestALongNameIsLetIn(t *testing.T) {
	f, _ := figuresAt()
	long := core.Attempt{Actor: strings.Repeat("a", nameMost+1), Resource: strings.Repeat("r", nameMost+1)}
	for op, d := range map[string]core.Decision{
		"unban": {Reason: core.ReasonBanned, Attempt: long, RetryAfter: time.Hour},
		"reset": {Reason: core.ReasonLimited, Attempt: long, RetryAfter: time.Hour},
	} {
		f.observed(op, d, nil)
		f.Observe(t.Context(), core.Event{Guard: op, Op: op, Decision: core.Decision{Attempt: long}})
		for _, one := range f.actorsOf(op) {
			if one.refusedNow(f.present()) != 0 {
				t.Errorf("%s: refused for %s until %v", op, one.reason, one.until)
			}
		}
	}
}

// TestFiguresAreWholeAtTheEdgeOfAMinute: many goroutines begin a minute at one moment.
func TestFiguresAreWholeAtTheEdgeOfAMinute(t *testing.T) {
	f, c := figuresAt()
	const workers, each, rounds = 8, 200, 5
	for range rounds {
		var all sync.WaitGroup
		for range workers {
			all.Go(func() {
				for range each {
					f.observed("site", core.Decision{Allowed: true, Attempt: attempt("ann")}, nil)
				}
			})
		}
		all.Wait()
		c.move(time.Minute)
	}
	if h := f.hourOf(t, "site"); h.Allowed != workers*each*rounds {
		t.Errorf("%d counted, want %d", h.Allowed, workers*each*rounds)
	}
}

// TestFiguresStayBounded: guards, reasons, actors and names may come from outside, without end.
func TestFiguresStayBounded(t *testing.T) {
	f, _ := figuresAt()
	long := strings.Repeat("\x00{é}", 5000)
	for i := range 5000 {
		name := fmt.Sprint(long, i)
		f.observed("site", core.Decision{
			Reason: core.Reason("reason-" + fmt.Sprint(i)), RetryAfter: time.Hour,
			Attempt: core.Attempt{Actor: fmt.Sprint(i, long), Resource: name, Item: name},
		}, nil)
		f.observed("bans", core.Decision{
			Reason: core.ReasonBanned, RetryAfter: time.Duration(i) * time.Second, Attempt: attempt(fmt.Sprint(i)),
		}, nil)
		f.observed(fmt.Sprint("guard-", i), core.Decision{Allowed: true}, nil)
	}
	known := 0
	f.guards.Range(func(any, any) bool { known++; return true })
	if known > guardsMost {
		t.Errorf("%d guards", known)
	}
	h := f.hourOf(t, "site")
	if len(h.By) != reasonsMost || h.By[0] != (reasonCount{"other", 5000 - reasonsMost + 1}) {
		t.Errorf("reasons: %v", h.By)
	}
	all := f.actorsOf("site")
	if len(all) != actorsMost {
		t.Errorf("%d actors", len(all))
	}
	for _, a := range all {
		if len(a.actor) > nameMost || len(a.resource) > nameMost || len(a.item) > nameMost || !a.cut {
			t.Fatalf("a name of %d, %d, %d bytes; cut: %t", len(a.actor), len(a.resource), len(a.item), a.cut)
		}
	}
	if all := f.actorsOf("bans"); len(all) != 2*actorsMost && len(all) != actorsMost {
		t.Errorf("%d actors of the bans", len(all))
	} else if !slices.ContainsFunc(all, func(a actor) bool { return a.actor == "4999" }) {
		t.Error("the longest ban is not known")
	}
}

// TestWhoeverAttemptsMostIsKnown, however many others attempt: the sketch has everybody who makes more than a
// 64th of all attempts, and counts them at least as often as they came.
func TestWhoeverAttemptsMostIsKnown(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	f, _ := figuresAt()
	real := map[string]uint64{}
	for i := range 100_000 {
		name := fmt.Sprint("crowd-", i)
		if r.IntN(20) == 0 {
			name = "flood"
		} else if r.IntN(30) == 0 {
			name = "busy"
		}
		real[name]++
		f.observed("site", core.Decision{Allowed: true, Attempt: attempt(name)}, nil)
	}
	found := 0
	for _, a := range f.actorsOf("site") {
		if a.actor == "flood" || a.actor == "busy" {
			found++
			if n := real[a.actor]; a.attempts < n || a.attempts > n+100_000/actorsMost {
				t.Errorf("%s: %d attempts, really %d", a.actor, a.attempts, n)
			}
		}
	}
	if found != 2 {
		t.Errorf("%d of 2 are known", found)
	}
}

// TestABannedActorStaysInSight until the ban ends or is lifted, whoever attempts meanwhile.
func TestABannedActorStaysInSight(t *testing.T) {
	f, c := figuresAt()
	ban := func(name string) {
		f.observed("bans", core.Decision{Reason: core.ReasonBanned, RetryAfter: time.Hour,
			Attempt: attempt(name)}, nil)
	}
	ban("bob")
	ban("eve")
	for i := range 1000 {
		f.observed("bans", core.Decision{Allowed: true, Attempt: attempt(fmt.Sprint(i))}, nil)
	}
	is := func(name string) bool {
		for _, a := range f.actorsOf("bans") {
			if a.actor == name && a.refusedNow(c.now()) == 2 {
				return true
			}
		}
		return false
	}
	if !is("bob") || !is("eve") {
		t.Error("a banned actor is not shown")
	}
	f.Observe(t.Context(), core.Event{Guard: "bans", Op: "unban",
		Decision: core.Decision{Attempt: attempt("bob")}})
	if is("bob") || !is("eve") {
		t.Error("bob's ban was lifted, eve's was not")
	}
	if c.move(time.Hour); is("eve") {
		t.Error("a ban is shown after its end")
	}
}

// Promise: Names of actors stay in the process, and are shown only if `Authorize` allows the action `actors`.
func TestNoActorsKeepsNoNames(t *testing.T) {
	f, _ := figuresAt()
	f.NoActors = true
	f.observed("site", core.Decision{Allowed: true, Attempt: attempt("ann")}, nil)
	if all := f.actorsOf("site"); len(all) != 0 || f.hourOf(t, "site").Allowed != 1 {
		t.Errorf("actors: %v", all)
	}
}

// BenchmarkFigures is what the figures cost a check: of one actor, and of a flood of actors who come once.
func BenchmarkFigures(b *testing.B) {
	for _, count := range []int{1, 1 << 16} {
		names := make([]string, count)
		for i := range names {
			names[i] = fmt.Sprint("actor-", i)
		}
		b.Run(fmt.Sprint(count, " actors"), func(b *testing.B) {
			f := new(Figures)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				f.observed("site", core.Decision{Allowed: true, Attempt: attempt(names[i%count])}, nil)
			}
		})
	}
}
