package core

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

// rateLimit is what every rate limit can do.
type rateLimit interface {
	Guard
	Peek(ctx context.Context, a Attempt) (Decision, error)
	Reset(ctx context.Context, a Attempt) error
	Refund(ctx context.Context, d Decision) error
	logKeys(a Attempt) []string
}

// logKeys are the keys of a limiter whose limits are always the same.
func (l *limiter) logKeys(a Attempt) []string { return l.keysOf(l.limits, a) }

// kind is one algorithm, for tests of what all promise.
type kind struct {
	name string
	make func(e *Engine, name string, limit Limit, more ...Limit) rateLimit
	by   func(e *Engine, name string, limits LimitsFunc) rateLimit
}

var kinds = []kind{
	{
		"SlidingWindow",
		func(e *Engine, name string, l Limit, more ...Limit) rateLimit {
			return e.SlidingWindow(name, l, more...)
		},
		func(e *Engine, name string, by LimitsFunc) rateLimit { return e.SlidingWindowBy(name, by) },
	},
	{
		"FixedWindow",
		func(e *Engine, name string, l Limit, more ...Limit) rateLimit { return e.FixedWindow(name, l, more...) },
		func(e *Engine, name string, by LimitsFunc) rateLimit { return e.FixedWindowBy(name, by) },
	},
	{
		"TokenBucket",
		func(e *Engine, name string, l Limit, more ...Limit) rateLimit { return e.TokenBucket(name, l, more...) },
		func(e *Engine, name string, by LimitsFunc) rateLimit { return e.TokenBucketBy(name, by) },
	},
}

// byParts is the sliding window that counts by 100 parts of its window, for tests of what it costs and how strict it is.
var byParts = kind{
	"SlidingWindow by parts",
	func(e *Engine, name string, l Limit, more ...Limit) rateLimit {
		for i := range more {
			more[i].Resolution = 100
		}
		return e.SlidingWindow(name, l.WithResolution(100), more...)
	},
	nil,
}

// eachKind runs f for every algorithm on every backend.
func eachKind(t *testing.T, f func(t *testing.T, b redistest.Backend, k kind)) {
	t.Helper()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) { f(t, b, k) })
		})
	}
}

// inMemory stands for no Redis: newEngine makes an engine inside the process for it.
var inMemory = redistest.Backend{Name: "memory"} // has no Client

// eachKindEverywhere is eachKind, and without Redis as well.
func eachKindEverywhere(t *testing.T, f func(t *testing.T, b redistest.Backend, k kind)) {
	t.Helper()
	for _, k := range kinds {
		t.Run(k.name+"/"+inMemory.Name, func(t *testing.T) { f(t, inMemory, k) })
	}
	eachKind(t, f)
}

func peek(t *testing.T, g rateLimit, a Attempt) Decision {
	t.Helper()
	d, err := g.Peek(t.Context(), a)
	if err != nil {
		t.Fatalf("Peek(%+v): %v", a, err)
	}
	return d
}

func refund(t *testing.T, g rateLimit, d Decision) {
	t.Helper()
	if err := g.Refund(t.Context(), d); err != nil {
		t.Fatalf("Refund(%+v): %v", d, err)
	}
}

// wantNoKeys fails when Redis has kept anything of the attempt's actor and resource.
func wantNoKeys(t *testing.T, b redistest.Backend, g rateLimit, a Attempt) {
	t.Helper()
	if b.Client == nil {
		return
	}
	if n := b.Client.Exists(t.Context(), g.logKeys(a)...).Val(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}

// snapshot is what the keys hold, and on real servers when they expire.
func snapshot(t *testing.T, b redistest.Backend, keys []string) (text []string) {
	t.Helper()
	for _, key := range keys {
		value := b.Client.Get(t.Context(), key).Val()
		list := b.Client.LRange(t.Context(), key, 0, -1).Val()
		expires := time.Duration(0)
		if b.Mini == nil {
			expires = b.Client.PExpireTime(t.Context(), key).Val()
		}
		text = append(text, fmt.Sprintf("%q %q %v", value, list, expires))
	}
	return text
}

func TestLimiterRefusalAndPeekWriteNothing(t *testing.T) {
	eachKind(t, func(t *testing.T, b redistest.Backend, k kind) {
		g := k.make(newEngine(b, WithRefusalMemory(0)), "w", Per(2, time.Hour), Per(9, 24*time.Hour))
		a := Attempt{Actor: "a"}
		keys := g.logKeys(a)
		peek(t, g, a)
		if n := b.Client.Exists(t.Context(), keys...).Val(); n != 0 {
			t.Error("a peek has left a key")
		}
		check(t, g, a)
		before := snapshot(t, b, keys)
		wantReason(t, peek(t, g, a), ReasonOK)
		check(t, g, Attempt{Actor: "a", Cost: 2})
		if after := snapshot(t, b, keys); !reflect.DeepEqual(after, before) {
			t.Errorf("the keys held %q and hold %q", before, after)
		}
		check(t, g, a)
		before = snapshot(t, b, keys)
		for range 5 {
			wantReason(t, check(t, g, a), ReasonLimited)
			wantReason(t, check(t, g, Attempt{Actor: "a", Cost: 2}), ReasonLimited)
			wantReason(t, peek(t, g, a), ReasonLimited)
		}
		if after := snapshot(t, b, keys); !reflect.DeepEqual(after, before) {
			t.Errorf("the keys held %q and hold %q", before, after)
		}
	})
}

func TestLimiterPeek(t *testing.T) {
	eachKindEverywhere(t, func(t *testing.T, b redistest.Backend, k kind) {
		clock := newTestClock()
		g := k.make(newEngine(b, withClock(clock)), "w", Per(3, time.Minute))
		a := Attempt{Actor: "a", Cost: 1 << 60} // a peek is for one unit
		for left := int64(3); left > 0; left-- {
			for range 2 {
				d := peek(t, g, a)
				wantReason(t, d, ReasonOK)
				if d.Remaining != left || d.Limit != 3 || d.Window != time.Minute || d.Guard != "w" || d.Attempt.Cost != 1 {
					t.Fatalf("%+v: want %d remaining", d, left)
				}
			}
			check(t, g, Attempt{Actor: "a"})
		}
		seen, decided := peek(t, g, a), check(t, g, Attempt{Actor: "a"})
		wantReason(t, seen, ReasonLimited)
		if seen.RetryAfter != decided.RetryAfter || seen.RetryAfter == 0 || seen.Remaining != 0 {
			t.Errorf("peek %+v, check %+v", seen, decided)
		}
		clock.Advance(seen.RetryAfter - time.Microsecond)
		wantReason(t, peek(t, g, a), ReasonLimited)
		clock.Advance(time.Microsecond)
		wantReason(t, peek(t, g, a), ReasonOK)

		free := peek(t, g, Attempt{Actor: "b"})
		if err := g.Refund(t.Context(), free); !isInvalid(err) {
			t.Errorf("giving back what was only looked at: %v", err)
		}
		if _, err := g.Peek(t.Context(), Attempt{}); !isInvalid(err) {
			t.Errorf("no actor: %v", err)
		}
	})
}

func TestLimiterReset(t *testing.T) {
	eachKindEverywhere(t, func(t *testing.T, b redistest.Backend, k kind) {
		clock := newTestClock()
		g := k.make(newEngine(b, withClock(clock)), "w", Per(2, time.Minute), Per(4, time.Hour))
		a := Attempt{Actor: "a", Resource: "r"}
		other := Attempt{Actor: "a", Resource: "s"}
		first := check(t, g, a)
		check(t, g, a)
		check(t, g, Attempt{Actor: "a", Resource: "s", Cost: 2})
		wantReason(t, check(t, g, a), ReasonLimited)
		for range 2 {
			if err := g.Reset(t.Context(), Attempt{Actor: "a", Resource: "r", Cost: -1}); err != nil {
				t.Fatal(err)
			}
			wantNoKeys(t, b, g, a)
		}
		wantReason(t, check(t, g, other), ReasonLimited)
		clock.Advance(time.Millisecond) // a sliding window knows its units by their moment
		if d := check(t, g, a); d.Remaining != 1 {
			t.Errorf("%+v: want 1 remaining", d)
		}
		refund(t, g, first) // was forgotten, so there is nothing to give back
		if d := check(t, g, a); d.Remaining != 0 {
			t.Errorf("%+v: want 0 remaining", d)
		}
		if err := g.Reset(t.Context(), Attempt{}); !isInvalid(err) {
			t.Errorf("no actor: %v", err)
		}
	})
}

func TestLimiterRefund(t *testing.T) {
	eachKindEverywhere(t, func(t *testing.T, b redistest.Backend, k kind) {
		clock := newTestClock()
		e := newEngine(b, withClock(clock))
		g := k.make(e, "w", Per(4, time.Minute), Per(5, time.Hour))
		a := Attempt{Actor: "a"}
		first := check(t, g, a)
		second := check(t, g, Attempt{Actor: "a", Cost: 2})
		third := check(t, g, a)
		refused := check(t, g, a)
		wantReason(t, refused, ReasonLimited)
		for range 3 {
			refund(t, g, second)
			settle(t, g, second, false)
		}
		settle(t, g, third, true)
		refund(t, g, refused)
		if d := peek(t, g, a); d.Remaining != 2 {
			t.Fatalf("%+v: want 2 remaining", d)
		}
		for i, key := range g.logKeys(a) {
			if b.Client == nil {
				break
			}
			if ttl := b.Client.PTTL(t.Context(), key).Val(); ttl <= 0 {
				t.Errorf("the key of limit %d expires in %v", i+1, ttl)
			}
		}
		refund(t, g, first)
		refund(t, g, third)
		wantNoKeys(t, b, g, a)
		d := check(t, g, a)
		refund(t, g, third)
		refund(t, g, first)
		if d := peek(t, g, a); d.Remaining != 3 {
			t.Errorf("%+v: want 3 remaining: nothing was given back twice", d)
		}
		clock.Advance(2 * time.Hour) // all that it took has come back
		check(t, g, a)
		refund(t, g, d)
		if d := peek(t, g, a); d.Remaining != 3 {
			t.Errorf("%+v: want 3 remaining: what came back by itself is not given back", d)
		}

		other := k.make(e, "other", Per(4, time.Minute))
		for _, d := range []Decision{check(t, other, a), {Guard: "w", Allowed: true, Attempt: a}, {Allowed: true}} {
			if err := g.Refund(t.Context(), d); !isInvalid(err) {
				t.Errorf("refund of %+v: %v", d, err)
			}
		}
	})
}

func TestLimiterSeveralLimitsAllOrNothing(t *testing.T) {
	eachKindEverywhere(t, func(t *testing.T, b redistest.Backend, k kind) {
		clock := newTestClock()
		g := k.make(newEngine(b, withClock(clock)), "w", Per(100, time.Hour), Per(2, time.Second), Per(3, time.Minute))
		a := Attempt{Actor: "a"}
		if d := check(t, g, a); d.Limit != 2 || d.Remaining != 1 {
			t.Fatalf("%+v: want 1 of 2 remaining", d)
		}
		check(t, g, a)
		for range 5 {
			if d := check(t, g, a); d.Allowed || d.Limit != 2 || d.RetryAfter > time.Second {
				t.Fatalf("%+v: want the limit a second to refuse", d)
			}
		}
		clock.Advance(time.Second)
		if d := check(t, g, a); !d.Allowed || d.Limit != 3 || d.Remaining != 0 {
			t.Fatalf("%+v: want 0 of 3 remaining", d)
		}
		clock.Advance(time.Second)
		for range 5 {
			if d := check(t, g, a); d.Allowed || d.Limit != 3 || d.RetryAfter <= time.Second {
				t.Fatalf("%+v: want the limit a minute to refuse", d)
			}
		}
		if d := check(t, g, Attempt{Actor: "a", Cost: 3}); d.Reason != ReasonOverLimit || d.Limit != 2 {
			t.Fatalf("%+v: want over_limit", d)
		}
		clock.Advance(time.Minute)
		if d := check(t, g, Attempt{Actor: "a", Cost: 2}); !d.Allowed {
			t.Fatalf("%+v: the refused attempts have taken something", d)
		}
	})
}

func TestLimiterHostileText(t *testing.T) {
	eachKindEverywhere(t, func(t *testing.T, b redistest.Backend, k kind) {
		g := k.make(newEngine(b), "w", Per(1, time.Hour))
		for _, text := range hostile {
			for _, a := range []Attempt{{Actor: text}, {Actor: "x", Resource: text}, {Actor: text, Resource: "x"}} {
				d := check(t, g, a)
				if !d.Allowed || check(t, g, a).Allowed {
					t.Errorf("%.40q has no budget of its own", text)
				}
				refund(t, g, d)
				wantReason(t, peek(t, g, a), ReasonOK)
				wantReason(t, check(t, g, a), ReasonOK)
			}
		}
	})
}

func TestLimiterRace(t *testing.T) {
	eachKind(t, func(t *testing.T, b redistest.Backend, k kind) {
		const clients, calls, limit = 4, 400, 50
		guards := make([]rateLimit, clients)
		for i := range guards {
			b.Client = b.NewClient(t)
			guards[i] = k.make(newEngine(b), "w", Per(limit, 24*time.Hour))
		}
		var allowed atomic.Int64
		var all sync.WaitGroup
		for i := range calls {
			all.Go(func() {
				d, err := guards[i%clients].Check(t.Context(), Attempt{Actor: "a"})
				if err != nil {
					t.Error(err)
				}
				if d.Allowed {
					allowed.Add(1)
				}
			})
		}
		all.Wait()
		if allowed.Load() != limit {
			t.Errorf("%d of %d calls were allowed, want %d", allowed.Load(), calls, limit)
		}
	})
}

func TestLimitersShareNothing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		e := newEngine(b)
		for _, k := range kinds {
			for _, name := range []string{"a", "b"} {
				g := k.make(e, k.name+name, PerHour(1))
				wantReason(t, check(t, g, Attempt{Actor: "x"}), ReasonOK)
				wantReason(t, check(t, g, Attempt{Actor: "x"}), ReasonLimited)
			}
			// One name for two algorithms is possible in two processes only, such as an old and a new version.
			wantReason(t, check(t, k.make(newEngine(b), "same", PerHour(1)), Attempt{Actor: "x"}), ReasonOK)
		}
	})
}

// TestLimitersOfOneNameShareNoOtherLimit: in two processes, such as an old and a new version, a name may have other limits. What is
// kept by another algorithm, window or resolution is not theirs.
func TestLimitersOfOneNameShareNoOtherLimit(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		used := map[string]string{}
		for _, k := range kinds {
			for _, l := range []Limit{
				PerMinute(2), PerHour(2), Per(2, 60_001*time.Millisecond),
				PerMinute(2).WithResolution(2), PerMinute(2).WithResolution(60), PerHour(2).WithResolution(60),
			} {
				if l.Resolution > 0 && k.name != "SlidingWindow" {
					continue
				}
				what := fmt.Sprintf("%s %v", k.name, l)
				clock := newTestClock()
				g := k.make(newEngine(b, withClock(clock)), "api", l)
				a := Attempt{Actor: "a"}
				if other, taken := used[g.logKeys(a)[0]]; taken {
					t.Errorf("%s and %s have one key", what, other)
				}
				used[g.logKeys(a)[0]] = what
				for want := int64(1); want >= 0; want-- {
					if d := check(t, g, a); !d.Allowed || d.Remaining != want {
						t.Errorf("%s: %+v, want %d remaining", what, d, want)
					}
				}
				wantReason(t, check(t, g, a), ReasonLimited)
			}
		}
	})
}

// TestLimiterLostReply: a check is sent once, so at most one unit is gone; all else may be sent again.
func TestLimiterLostReply(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		e := newEngine(b)
		for _, k := range kinds {
			g := k.make(e, k.name, PerDay(5))
			if err := e.Preload(t.Context()); err != nil {
				t.Fatal(err)
			}
			a := Attempt{Actor: "ann"}
			lost := func() {
				t.Helper()
				faults.SwallowReply("evalsha")
			}
			lost()
			if _, err := g.Check(t.Context(), a); err == nil {
				t.Errorf("%s: the lost reply was not reported: was the check sent again?", k.name)
			}
			d := check(t, g, a)
			if d.Remaining != 3 {
				t.Errorf("%s: %+v: want 3 remaining", k.name, d)
			}
			lost()
			refund(t, g, d)
			lost()
			if d := peek(t, g, a); d.Remaining != 4 {
				t.Errorf("%s: %+v: want 4 remaining", k.name, d)
			}
			lost()
			if err := g.Reset(t.Context(), a); err != nil {
				t.Error(err)
			}
			if d := peek(t, g, a); d.Remaining != 5 {
				t.Errorf("%s: %+v: want 5 remaining", k.name, d)
			}
		}
		if n := faults.Swallowed(); n != 4*len(kinds) {
			t.Errorf("%d replies were swallowed", n)
		}
	})
}

func TestLimiterFullRedis(t *testing.T) {
	s := redistest.StartServer(t, "--maxmemory-policy", "noeviction")
	rdb := s.Client(t)
	e := New(rdb, WithObserver(ignore{}), WithDeadline(10*time.Second))
	for _, k := range kinds {
		g := k.make(e, k.name, PerDay(5), Per(9, 48*time.Hour))
		a := Attempt{Actor: "a"}
		first := check(t, g, a)
		rdb.ConfigSet(t.Context(), "maxmemory", "1")
		if _, err := g.Check(t.Context(), a); err == nil || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("%s: a full Redis: %v, want its OOM error", k.name, err)
		}
		if err := g.Refund(t.Context(), first); err == nil {
			t.Errorf("%s: a full Redis took a refund's mark", k.name)
		}
		if d := peek(t, g, a); d.Remaining != 4 {
			t.Errorf("%s: %+v: want 4 remaining: a failed call changes nothing", k.name, d)
		}
		rdb.ConfigSet(t.Context(), "maxmemory", "0")
		refund(t, g, first)
		if d := peek(t, g, a); d.Remaining != 5 {
			t.Errorf("%s: %+v: want 5 remaining", k.name, d)
		}
	}
}

func TestLimitersByAttempt(t *testing.T) {
	eachKindEverywhere(t, func(t *testing.T, b redistest.Backend, k kind) {
		tiers := map[string][]Limit{"free": {Per(1, time.Hour)}, "paid": {Per(3, time.Hour), Per(5, 24*time.Hour)}}
		g := k.by(newEngine(b), "w", func(_ context.Context, a Attempt) ([]Limit, error) {
			if a.ID == "" || a.Cost < 1 {
				t.Errorf("%+v is not filled in", a)
			}
			return tiers[a.Resource], nil
		})
		if d := check(t, g, Attempt{Actor: "a", Resource: "free"}); d.Limit != 1 || d.Remaining != 0 {
			t.Errorf("%+v", d)
		}
		wantReason(t, check(t, g, Attempt{Actor: "a", Resource: "free"}), ReasonLimited)
		wantReason(t, check(t, g, Attempt{Actor: "a", Resource: "free", Cost: 2}), ReasonOverLimit)
		a := Attempt{Actor: "a", Resource: "paid"}
		d := check(t, g, a)
		if d.Limit != 3 || d.Remaining != 2 {
			t.Errorf("%+v", d)
		}
		delete(tiers, "paid") // a refund is by the limits that the attempt had
		refund(t, g, d)
		tiers["paid"] = []Limit{Per(3, time.Hour)}
		if d := peek(t, g, a); d.Remaining != 3 {
			t.Errorf("%+v: want 3 remaining", d)
		}
		check(t, g, a)
		if err := g.Reset(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if d := peek(t, g, a); d.Remaining != 3 {
			t.Errorf("%+v: want 3 remaining", d)
		}
	})
}

func TestLimitsByAttemptThatMakeNoSense(t *testing.T) {
	broken := errors.New("the tiers are not loaded")
	for text, limits := range map[string][]Limit{
		"no limits":               {},
		"lets nobody in":          {PerHour(0)},
		"at most":                 {PerHour(5), Per(1<<60, time.Minute)},
		"whole milliseconds":      {Per(1, 1500*time.Microsecond)},
		"8784h0m0s":               {Per(1, 367*24*time.Hour)},
		"keep the smaller":        {PerHour(5), PerHour(6)},
		broken.Error():            nil,
		ErrInvalidAttempt.Error(): nil,
	} {
		for _, k := range kinds {
			var failure error
			switch text {
			case broken.Error():
				failure = broken
			case ErrInvalidAttempt.Error():
				failure = fmt.Errorf("%w: no such tenant", ErrInvalidAttempt)
			}
			g := k.by(New(nothing{}, WithObserver(ignore{})), "w", func(context.Context, Attempt) ([]Limit, error) { return limits, failure })
			d, err := g.Check(t.Context(), Attempt{Actor: "a"})
			_, peeked := g.Peek(t.Context(), Attempt{Actor: "a"})
			for _, err := range []error{err, peeked, g.Reset(t.Context(), Attempt{Actor: "a"})} {
				if err == nil || !strings.Contains(err.Error(), text) || isInvalid(err) != errors.Is(failure, ErrInvalidAttempt) {
					t.Errorf("%s: %v, want an error with %q", k.name, err, text)
				}
				if failure != nil && !errors.Is(err, failure) {
					t.Errorf("%s: %v does not wrap what the function returned", k.name, err)
				}
			}
			if d.Allowed || d.Guard != "w" || d.Attempt.ID == "" {
				t.Errorf("%+v beside an error", d)
			}
		}
	}
}

func TestLimitsByAttemptHaveTheDeadline(t *testing.T) {
	b := redistest.Mini(t)
	e := New(b.Client, WithDeadline(20*time.Millisecond), WithObserver(ignore{}))
	g := e.SlidingWindowBy("w", func(ctx context.Context, _ Attempt) ([]Limit, error) {
		<-ctx.Done()
		return []Limit{PerHour(1)}, nil
	})
	if d, err := g.Check(t.Context(), Attempt{Actor: "a"}); d.Allowed || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestLimitChangedAtRunTime: what was used counts on, whichever way a limit is changed.
func TestLimitChangedAtRunTime(t *testing.T) {
	eachKindEverywhere(t, func(t *testing.T, b redistest.Backend, k kind) {
		clock := newTestClock()
		var limits []Limit
		g := k.by(newEngine(b, withClock(clock)), "w", func(context.Context, Attempt) ([]Limit, error) { return limits, nil })
		bucket := k.name == "TokenBucket"
		take := func(want, remaining int64) {
			t.Helper()
			var n int64
			for ; n < 1000; n++ {
				if d := check(t, g, Attempt{Actor: "a"}); !d.Allowed {
					if d.RetryAfter <= 0 || d.RetryAfter > time.Hour {
						t.Errorf("%+v: locked out", d)
					}
					break
				}
			}
			if n != want {
				t.Fatalf("%v: %d attempts were allowed, want %d", limits, n, want)
			}
			if d := peek(t, g, Attempt{Actor: "a"}); d.Remaining != remaining {
				t.Fatalf("%+v: want %d remaining", d, remaining)
			}
		}
		limits = []Limit{PerHour(10)}
		take(10, 0)
		limits = []Limit{PerHour(20)} // raised
		if bucket {
			take(0, 0) // an empty bucket is empty, whatever it could hold
		} else {
			take(10, 0)
		}
		limits = []Limit{PerHour(4)} // lowered, below what is used
		take(0, 0)
		limits = []Limit{PerHour(20)} // and back
		take(0, 0)
		limits = []Limit{PerHour(20), Per(5, time.Minute)} // a window more
		take(0, 0)
		limits = []Limit{PerHour(4)}
		clock.Advance(time.Hour)
		take(4, 0)

		limits = []Limit{PerHour(20), Per(3, time.Minute)}
		clock.Advance(30 * time.Minute)
		take(3, 0)
		limits = limits[:1] // a window less
		if bucket {
			take(7, 0) // half full, less the three
		} else {
			take(13, 0) // less the four and the three
		}
	})
}

// stampOf returns when an allowed attempt took its units, 0 for a decision that took none.
func stampOf(d Decision) int64 {
	if took, ok := ClaimOf[*taken](d); ok {
		return took.stamp
	}
	return 0
}
