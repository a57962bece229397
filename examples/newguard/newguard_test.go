package newguard_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/examples/newguard"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func newGuard(b redistest.Backend, name string, places int) *newguard.Guard {
	gate := core.New(b.Client, core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute))
	return newguard.New(gate, name, places, time.Hour)
}

func check(t *testing.T, g core.Guard, member string, want core.Reason) core.Decision {
	t.Helper()
	d, err := g.Check(t.Context(), core.Attempt{Actor: member, Resource: "go for {beginners}"})
	if err != nil || d.Reason != want || d.Allowed != (want == core.ReasonOK) {
		t.Fatalf("%s: %+v, %v: want %q", member, d, err, want)
	}
	return d
}

func TestPlacesAreTakenOnce(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newGuard(b, "places", 2)
		ann := check(t, g, "ann", core.ReasonOK)
		check(t, g, "ann", core.ReasonDuplicate)
		if d := check(t, g, "bob", core.ReasonOK); d.Limit != 2 || d.Remaining != 0 {
			t.Errorf("%d of %d left", d.Remaining, d.Limit)
		}
		check(t, g, "cid", newguard.ReasonFull)

		if err := g.Settle(t.Context(), ann, core.Commit); err != nil {
			t.Fatal(err)
		}
		check(t, g, "cid", newguard.ReasonFull)
	})
}

func TestAFailedAttemptGivesItsPlaceBackOnce(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newGuard(b, "places", 1)
		ann := check(t, g, "ann", core.ReasonOK)
		for range 2 {
			if err := g.Settle(t.Context(), ann, core.Rollback); err != nil {
				t.Fatal(err)
			}
		}
		check(t, g, "bob", core.ReasonOK)
		if err := g.Settle(t.Context(), ann, core.Rollback); err != nil {
			t.Fatal(err)
		}
		check(t, g, "cid", newguard.ReasonFull)
	})
}

func TestForeignDecisionsAreNotSettled(t *testing.T) {
	b := redistest.Mini(t)
	g, other := newGuard(b, "places", 1), newGuard(b, "others", 1)
	d := check(t, g, "ann", core.ReasonOK)
	if err := other.Settle(t.Context(), d, core.Rollback); !errors.Is(err, core.ErrInvalid) {
		t.Errorf("another guard: %v", err)
	}
	fromElsewhere := core.Decision{Guard: d.Guard, Attempt: d.Attempt, Allowed: true, Reason: d.Reason}
	if err := g.Settle(t.Context(), fromElsewhere, core.Rollback); !errors.Is(err, core.ErrInvalid) {
		t.Errorf("another process: %v", err)
	}
}

// TestALostReplyTakesOnePlace: go-redis sends the call again, and the member has one place.
func TestALostReplyTakesOnePlace(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		g := newGuard(b, "places", 2)
		if err := g.Engine().Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		faults.SwallowReply("evalsha")
		if d := check(t, g, "ann", core.ReasonOK); d.Remaining != 1 || faults.Swallowed() != 1 {
			t.Errorf("%d left, %d replies swallowed", d.Remaining, faults.Swallowed())
		}
	})
}

// TestACancelledCallTakesNoPlace: the answer is not awaited, so the call is undone in the background.
func TestACancelledCallTakesNoPlace(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		witness := newGuard(b, "places", 2)
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		g := newGuard(b, "places", 2)
		if err := g.Engine().Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		left := func(g *newguard.Guard) int64 { // takes a place to read the number, and gives it back
			d, err := g.Check(t.Context(), core.Attempt{Actor: "bob", Resource: "go"})
			if err == nil {
				err = g.Settle(t.Context(), d, core.Rollback)
			}
			if err != nil {
				t.Fatal(err)
			}
			return d.Remaining
		}
		left(g) // opens a connection
		faults.Hang(true)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := g.Check(ctx, core.Attempt{Actor: "ann", Resource: "go"})
			done <- err
		}()
		redistest.Eventually(t, time.Minute, func() bool { return left(witness) == 0 },
			"the place to be taken")
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Check: %v", err)
		}
		faults.Hang(false)
		redistest.Eventually(t, time.Minute, func() bool { return left(witness) == 1 },
			"the place to be given back")
	})
}

func TestManyMembersAtOnce(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		g := newGuard(b, "places", 10)
		var all sync.WaitGroup
		reasons := make(chan core.Reason, 100)
		for i := range 100 {
			all.Go(func() {
				d, err := g.Check(t.Context(), core.Attempt{Actor: fmt.Sprint("member", i), Resource: "go"})
				if err != nil {
					t.Error(err)
				}
				reasons <- d.Reason
			})
		}
		all.Wait()
		close(reasons)
		count := map[core.Reason]int{}
		for reason := range reasons {
			count[reason]++
		}
		if count[core.ReasonOK] != 10 || count[newguard.ReasonFull] != 90 {
			t.Errorf("%v: want 10 and 90", count)
		}
	})
}

func TestRule(t *testing.T) {
	g := newGuard(redistest.Mini(t), "places", 1)
	book := ratelimit.Rule{Guard: g, Who: keyfuncs.Header("X-Member"), What: keyfuncs.Query("course")}
	mux := ratelimit.HTTP(book)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Member") == "unpaid" {
			w.WriteHeader(http.StatusPaymentRequired)
		}
	}))
	for _, step := range []struct {
		member string
		status int
	}{{"unpaid", 402}, {"ann", 200}, {"ann", 409}, {"bob", 409}} {
		r := httptest.NewRequest(http.MethodPost, "/bookings?course=go", nil)
		r.Header.Set("X-Member", step.member)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		if w.Code != step.status {
			t.Errorf("%s: %d, want %d", step.member, w.Code, step.status)
		}
	}
}

func TestOperatorSeesHowManyAreTaken(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newGuard(b, "places", 2)
		check(t, g, "ann", core.ReasonOK)
		for course, want := range map[string]int64{"go for {beginners}": 1, "none": 0} {
			if n, err := g.Taken(t.Context(), course); err != nil || n != want {
				t.Errorf("%s: %d, %v: want %d", course, n, err, want)
			}
		}
		asked := kit.DescriptionOf(g).Operations[0]
		in, err := asked.Read(map[string]string{"course": "go for {beginners}"})
		if err != nil {
			t.Fatal(err)
		}
		if n, err := asked.Run(t.Context(), in); err != nil || n != int64(1) {
			t.Errorf("the operation returned %v, %v", n, err)
		}
	})
}

func TestSetUpMistakesPanic(t *testing.T) {
	b := redistest.Mini(t)
	for name, f := range map[string]func(){
		"places":   func() { newGuard(b, "places", 0) },
		"name":     func() { newGuard(b, "no name", 1) },
		"no Redis": func() { newguard.New(core.NewMemory(), "places", 1, time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}
