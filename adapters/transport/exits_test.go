package transport_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/adapters/transport"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// own is a guard of an application. Its decisions have no Attempt.
type own struct{ hold, settle func() }

func (*own) Name() string        { return "partner" }
func (*own) Traits() core.Traits { return core.Traits{} }

func (*own) Check(context.Context, core.Attempt) (core.Decision, error) {
	return core.Decision{Guard: "partner", Allowed: true, Reason: core.ReasonOK}, nil
}

func (g *own) Settle(context.Context, core.Decision, core.Ending) error {
	if g.settle != nil {
		g.settle()
	}
	return nil
}

func (g *own) Hold(ctx context.Context, _ core.Decision) (held context.Context, stop context.CancelFunc) {
	if g.hold != nil {
		g.hold()
	}
	return ctx, func() {}
}

// TestAGuardThatPanics leaves no permit of another rule held, and no body open.
func TestAGuardThatPanics(t *testing.T) {
	panics := func() { panic("of the test") }
	for how, g := range map[string]*own{"Hold": {hold: panics}, "Settle": {settle: panics}} {
		t.Run(how, func(t *testing.T) {
			one := semaphore.New(core.NewMemory(), "one", semaphore.Options{Max: 1})
			sends, answers := &closed{Reader: strings.NewReader("")}, &closed{Reader: strings.NewReader("")}
			base := roundTrip(func(r *http.Request) (*http.Response, error) {
				_ = r.Body.Close()
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: answers}, nil
			})
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://partner.example", sends)
			if err != nil {
				t.Fatal(err)
			}
			guardtest.WantPanic(t, "of the test", func() {
				resp, err := transport.New(base, rule(g, 0), rule(one, 0)).RoundTrip(r)
				if err != nil {
					t.Error(err)
				}
				_ = resp.Body.Close()
			})
			if d := guardtest.Check(t, one, account); !d.Allowed {
				t.Error("the permit is held")
			}
			if sends.times.Load() == 0 || how == "Settle" && answers.times.Load() == 0 {
				t.Error("a body is open")
			}
		})
	}
}

// TestThePartnersWordInAnOutage: a request that passes because Redis does not answer brings a word all the
// same.
func TestThePartnersWordInAnOutage(t *testing.T) {
	t.Parallel()
	b, f := redistest.Single(t), redistest.NewFaults(t)
	e := guardtest.NewEngineOver(b, b.NewClientWith(t, f, hasty))
	open := rule(limit.NewSlidingWindow(e, "partner", limit.PerHour(100)), 0)
	open.OnOutage = core.FailOpen
	p := newAnswering(t)
	p.say(http.StatusTooManyRequests, "Retry-After", "30")
	c := client(t, open)
	f.Refuse(true)
	if status, err := get(c, p.URL); err != nil || status != http.StatusTooManyRequests {
		t.Errorf("%d, %v", status, err)
	}
	_, err := get(c, p.URL)
	wantLimited(t, err, time.Second, 30*time.Second, true)
}

// TestThePartnersWordOfAnOwnGuard: the pause is that of the account which the rule names.
func TestThePartnersWordOfAnOwnGuard(t *testing.T) {
	p := newAnswering(t)
	p.say(http.StatusTooManyRequests, "Retry-After", "30")
	c := client(t, rule(&own{}, 0))
	if _, err := get(c, p.URL); err != nil {
		t.Error(err)
	}
	_, err := get(c, p.URL)
	wantLimited(t, err, time.Second, 30*time.Second, true)
}

// TestRulesOfOneGuardHaveTheirOwnPauses: MaxPause and Pauses are those of each rule.
func TestRulesOfOneGuardHaveTheirOwnPauses(t *testing.T) {
	e := guardtest.NewEngine(redistest.Single(t))
	g := limit.NewSlidingWindow(e, "partner", limit.PerHour(100))
	short, long := rule(g, 0), rule(g, 0)
	short.MaxPause, long.MaxPause = time.Millisecond, time.Hour
	short.When = func(r *http.Request) bool { return r.URL.Path == "/short" }
	long.When = func(r *http.Request) bool { return r.URL.Path == "/long" }
	long.Pauses = bans.New(e, "banned", bans.Options{})
	p := newAnswering(t)
	p.say(http.StatusTooManyRequests, "Retry-After", "600")
	c := client(t, short, long)
	if _, err := get(c, p.URL+"/long"); err != nil {
		t.Error(err)
	}
	_, err := get(c, p.URL+"/long")
	wantLimited(t, err, 2*time.Minute, 10*time.Minute, true)
	redistest.Eventually(t, time.Minute, func() bool {
		d, err := long.Pauses.Check(t.Context(), account)
		return err == nil && !d.Allowed
	}, "Pauses of the second rule has no ban")
}

// failures counts the bans that failed.
type failures struct{ bans atomic.Int64 }

func (f *failures) Observe(_ context.Context, e core.Event) {
	if e.Op == "ban" && e.Err != nil {
		f.bans.Add(1)
	}
}

// TestAPauseIsToldWhenRedisIsBack: other processes hear of a pause that began while Redis did not answer.
func TestAPauseIsToldWhenRedisIsBack(t *testing.T) {
	t.Parallel()
	b, f := redistest.Single(t), redistest.NewFaults(t)
	var failed failures
	e := guardtest.NewEngineOver(b, b.NewClientWith(t, f, hasty), core.WithObserver(&failed))
	p := newAnswering(t)
	p.say(http.StatusTooManyRequests, "Retry-After", "50")
	here := client(t, rule(limit.NewSlidingWindow(e, "partner", limit.PerHour(100)), 0))
	f.Refuse(true)
	if _, err := get(here, p.URL); err != nil {
		t.Error(err)
	}
	_, err := get(here, p.URL)
	wantLimited(t, err, time.Second, 50*time.Second, true)
	redistest.Eventually(t, time.Minute, func() bool { return failed.bans.Load() > 0 }, "the ban fails")
	f.Heal()
	there := bans.New(guardtest.NewEngine(b), "partner.pauses", bans.Options{})
	redistest.Eventually(t, time.Minute, func() bool {
		d, err := there.Check(t.Context(), account)
		return err == nil && !d.Allowed
	}, "the pause is not told")
}
