package transport_test

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/adapters/transport"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// answering is a partner whose next answer is set by a test.
type answering struct {
	*partner
	mu     sync.Mutex
	status int
	header http.Header
}

func newAnswering(t *testing.T) *answering {
	t.Helper()
	a := &answering{}
	a.partner = newPartner(t, func(w http.ResponseWriter, _ *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		for name, values := range a.header {
			w.Header()[name] = values
		}
		if a.status != 0 {
			w.WriteHeader(a.status)
		}
	})
	return a
}

func (a *answering) say(status int, fields ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status, a.header = status, http.Header{}
	for i := 0; i < len(fields); i += 2 {
		a.header.Set(fields[i], fields[i+1])
	}
}

// TestThePartnersWord: what the fields of an answer do.
//
// Promise: Retry-After of 429 and 503, RateLimit and the X-RateLimit pair close the guard for that account, for
// MaxPause at most. Values that make no sense are ignored, and the observer is told.
func TestThePartnersWord(t *testing.T) {
	in := func(d time.Duration) time.Time { return time.Now().Add(d) }
	unix := func(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }
	const most = time.Minute
	begun := time.Now()
	for name, c := range map[string]struct {
		status  int
		fields  []string
		want    time.Duration
		strange bool
	}{
		"nothing":                 {200, nil, 0, false},
		"429 that says no time":   {429, nil, 0, false},
		"seconds":                 {429, []string{"Retry-After", "30"}, 30 * time.Second, false},
		"503":                     {503, []string{"Retry-After", "30"}, 30 * time.Second, false},
		"a 200":                   {200, []string{"Retry-After", "30"}, 0, false},
		"a date":                  {429, []string{"Retry-After", in(30 * time.Second).UTC().Format(http.TimeFormat)}, 30 * time.Second, false},
		"a date by another clock": {429, []string{"Retry-After", in(time.Hour + 30*time.Second).UTC().Format(http.TimeFormat), "Date", in(time.Hour).UTC().Format(http.TimeFormat)}, 30 * time.Second, false},
		"1970":                    {429, []string{"Retry-After", time.Unix(0, 0).UTC().Format(http.TimeFormat)}, 0, false},
		"10 years":                {429, []string{"Retry-After", "315360000"}, most, true},
		"a date in 10 years":      {429, []string{"Retry-After", in(87600 * time.Hour).UTC().Format(http.TimeFormat)}, most, true},
		"negative":                {429, []string{"Retry-After", "-1"}, 0, true},
		"garbage":                 {429, []string{"Retry-After", "soon"}, 0, true},
		"not a number":            {429, []string{"Retry-After", "NaN"}, 0, true},
		"infinite":                {429, []string{"Retry-After", "Inf"}, most, true},
		"a megabyte":              {429, []string{"Retry-After", strings.Repeat("9", 500_000)}, 0, true},
		"RateLimit":               {200, []string{"RateLimit", `"default";r=0;t=20`}, 20 * time.Second, false},
		"RateLimit with some":     {200, []string{"RateLimit", `"default";r=5;t=20`}, 0, false},
		"RateLimit of several":    {200, []string{"RateLimit", `"a";r=9;t=50, "b";r=0;t=20;pk=:dGVzdA==:`}, 20 * time.Second, false},
		"RateLimit, garbage":      {200, []string{"RateLimit", `"default";r=0;t=-5`}, 0, true},
		"RateLimit, long":         {200, []string{"RateLimit", strings.Repeat(`"a";r=0;t=5,`, 1000)}, 0, true},
		"RateLimit and more":      {429, []string{"RateLimit", `"default";r=0;t=20`, "Retry-After", "25"}, 25 * time.Second, false},
		"X-RateLimit, seconds":    {200, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "20"}, 20 * time.Second, false},
		"X-RateLimit, a moment":   {200, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", unix(in(20 * time.Second))}, 20 * time.Second, false},
		"X-RateLimit, in ms":      {200, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", strconv.FormatInt(in(20*time.Second).UnixMilli(), 10)}, 20 * time.Second, false},
		"X-RateLimit with some":   {200, []string{"X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "20"}, 0, false},
		"X-RateLimit, garbage":    {200, []string{"X-RateLimit-Remaining", "none", "X-RateLimit-Reset", "20"}, 0, true},
		"X-RateLimit, a past one": {200, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1000000000"}, 0, false},
		"X-RateLimit, 10 years":   {200, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", unix(in(87600 * time.Hour))}, most, true},
	} {
		t.Run(name, func(t *testing.T) {
			var events guardtest.Recorder
			p := newAnswering(t)
			g := limit.NewSlidingWindow(core.NewMemory(core.WithObserver(&events)), "partner", limit.PerHour(100))
			of := rule(g, 0)
			of.MaxPause = most
			cl := client(t, of)
			p.say(c.status, c.fields...)
			if status, err := get(cl, p.URL); err != nil || status != c.status {
				t.Fatalf("%d, %v", status, err)
			}
			p.say(http.StatusOK)
			_, err := get(cl, p.URL)
			if c.want == 0 {
				if err != nil {
					t.Errorf("%v: want no pause", err)
				}
			} else {
				wantLimited(t, err, c.want-2*time.Second-time.Since(begun), c.want+time.Second, true)
			}
			strange := false
			for _, e := range events.Events {
				strange = strange || e.Op == "pause" && e.Err != nil
			}
			if strange != c.strange {
				t.Errorf("the observer was told: %t, %+v", strange, events.Events)
			}
		})
	}
}

// TestAPauseHoldsInAllProcesses: for the account, and within a second.
//
// Promise: A pause holds in all processes within a second, for its account alone, and operators can end it.
func TestAPauseHoldsInAllProcesses(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		p, clock := newAnswering(t), guardtest.NewClock()
		process := func() (*http.Client, *core.Engine, transport.Rule) {
			e := guardtest.NewEngine(b, guardtest.WithClock(clock))
			of := transport.Rule{Guard: limit.NewSlidingWindow(e, "partner", limit.PerHour(10_000)),
				Who: keyfuncs.Header("X-Account"), Pauses: bans.New(e, "pauses", bans.Options{})}
			return client(t, of), e, of
		}
		send := func(c *http.Client, account string) error {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("X-Account", account)
			resp, err := c.Do(r)
			if err == nil {
				err = resp.Body.Close()
			}
			return err
		}
		one, e, _ := process()
		two, _, of := process()
		if err := send(two, "seven"); err != nil { // so that it knows that there is no pause
			t.Fatal(err)
		}
		p.say(http.StatusTooManyRequests, "Retry-After", "50")
		begun := time.Now()
		if err := send(one, "seven"); err != nil {
			t.Fatal(err)
		}
		p.say(http.StatusOK)
		wantLimited(t, send(one, "seven"), 48*time.Second-time.Since(begun), 50*time.Second, true)
		if err := e.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		clock.Advance(time.Second)
		wantLimited(t, send(two, "seven"), 48*time.Second-time.Since(begun), 49*time.Second, true)
		if err := send(two, "eight"); err != nil {
			t.Errorf("another account: %v", err)
		}
		if err := of.Pauses.Unban(t.Context(), core.Attempt{Actor: "seven"}); err != nil {
			t.Error(err)
		}
		if err := send(two, "seven"); err != nil {
			t.Errorf("a pause that an operator ended: %v", err)
		}
	})
}

// TestALateAnswerEndsNoPause: of two requests that are under way together, one is told a long pause, and the
// other, later or in another process, a short one.
//
// Promise: Answers may come in any order: a shorter pause does not end a longer one.
func TestALateAnswerEndsNoPause(t *testing.T) {
	run := func(t *testing.T, one, other *core.Engine) {
		came, late := make(chan bool), make(chan bool)
		p := newPartner(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", r.URL.Query().Get("pause"))
			if r.URL.Path == "/late" {
				came <- true
				<-late
			}
			w.WriteHeader(http.StatusTooManyRequests)
		})
		c := [2]*http.Client{}
		for i, e := range []*core.Engine{one, other} {
			if c[i] = c[0]; i == 0 || other != one {
				c[i] = client(t, rule(limit.NewSlidingWindow(e, "partner", limit.PerHour(100)), 0))
			}
		}
		var short sync.WaitGroup
		short.Go(func() {
			if _, err := get(c[1], p.URL+"/late?pause=2"); err != nil {
				t.Error(err)
			}
		})
		<-came
		_, err := get(c[0], p.URL+"?pause=60")
		if err = errors.Join(err, one.Drain(t.Context())); err != nil {
			t.Error(err)
		}
		close(late)
		short.Wait()
		if err := other.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		for _, c := range c {
			_, err = get(c, p.URL)
			wantLimited(t, err, 30*time.Second, time.Minute, true)
		}
	}
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		e := guardtest.NewEngine(b)
		run(t, e, e)
	})
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		run(t, guardtest.NewEngine(b), guardtest.NewEngine(b))
	})
	e := core.NewMemory()
	run(t, e, e)
}

// TestRequestsWaitForTheEndOfAPause, if they have the time.
func TestRequestsWaitForTheEndOfAPause(t *testing.T) {
	p := newAnswering(t)
	g := limit.NewSlidingWindow(core.NewMemory(), "partner", limit.PerHour(100))
	c := client(t, rule(g, 10*time.Second))
	p.say(http.StatusTooManyRequests, "Retry-After", "0.2")
	begun := time.Now()
	if _, err := get(c, p.URL); err != nil {
		t.Fatal(err)
	}
	p.say(http.StatusOK)
	if _, err := get(c, p.URL); err != nil || time.Since(begun) < 200*time.Millisecond {
		t.Errorf("%v after %v: want a request that has waited", err, time.Since(begun))
	}
	p.say(http.StatusServiceUnavailable, "Retry-After", "30")
	begun = time.Now()
	if _, err := get(c, p.URL); err != nil {
		t.Fatal(err)
	}
	_, err := get(c, p.URL)
	wantLimited(t, err, 30*time.Second-time.Since(begun), 30*time.Second, true)
}

// TestAPauseAsLongAsMost: the request waited for it, and had no time left to ask.
func TestAPauseAsLongAsMost(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		p := newAnswering(t)
		const pause = time.Second
		c := client(t, rule(limit.NewSlidingWindow(guardtest.NewEngine(b), "partner", limit.PerHour(100)), pause))
		p.say(http.StatusTooManyRequests, "Retry-After", "1")
		begun := time.Now()
		if _, err := get(c, p.URL); err != nil {
			t.Fatal(err)
		}
		p.say(http.StatusOK)
		switch _, err := get(c, p.URL); {
		case err != nil:
			wantLimited(t, err, time.Millisecond, pause, true)
		case time.Since(begun) < pause:
			t.Errorf("it has waited for %v", time.Since(begun))
		}
	})
}

// TestTheLastMoments of a pause: whoever is refused in them is told at least a millisecond, which is what a
// pause is counted in.
func TestTheLastMoments(t *testing.T) {
	p := newAnswering(t)
	const pause = 20 * time.Millisecond
	g := limit.NewSlidingWindow(core.NewMemory(), "partner", limit.PerHour(1000))
	c := client(t, rule(g, time.Nanosecond))
	for range 50 {
		p.say(http.StatusTooManyRequests, "Retry-After", "0.02")
		if _, err := get(c, p.URL); err != nil {
			t.Fatal(err)
		}
		p.say(http.StatusOK)
		refused := 0
		for {
			_, err := get(c, p.URL)
			if err == nil {
				break
			}
			wantLimited(t, err, time.Millisecond, pause, true)
			refused++
		}
		if refused > 0 { // else the pause was over when the next request came
			return
		}
	}
	t.Error("a pause of 20 ms holds nobody")
}
