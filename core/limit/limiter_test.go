package limit

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

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// rateLimit has the methods of every rate limit.
type rateLimit interface {
	core.Guard
	Peek(ctx context.Context, a core.Attempt) (core.Decision, error)
	Reset(ctx context.Context, a core.Attempt) error
	Refund(ctx context.Context, d core.Decision) error
	Spend(ctx context.Context, d core.Decision, actual int64) error
	kit.Waiter
	core() *limiter
	logKeys(a core.Attempt) []string
	storePart(a core.Attempt) *storePart
	forgetRefusals(a core.Attempt)
}

// core returns what all kinds share.
func (l *limiter) core() *limiter { return l }

// logKeys returns the keys of a limiter with fixed limits, in which it counts.
func (l *limiter) logKeys(a core.Attempt) []string {
	keys := l.keysOf(l.limits, a)
	if of := &l.limits.log; l.algorithm.log && (of.byParts == "" || of.oneByOne == "") {
		return keys[:1]
	}
	return keys
}

// storePart returns the part of a limiter's memory that holds the actor's counters.
func (l *limiter) storePart(a core.Attempt) *storePart {
	key := memoryKeyOf(&a)
	return l.local().store.part(&key)
}

// forgetRefusals drops what the process remembers of an actor. A test has to call it when it sets its clock
// back: the clock of a process is not set back, so no moment comes to it twice.
func (l *limiter) forgetRefusals(a core.Attempt) { l.refusals.drop(kit.TagOf(a)) }

// kind is one algorithm, for tests of the promises that all share.
type kind struct {
	name string
	make func(e *core.Engine, name string, limit Limit, more ...Limit) rateLimit
	by   func(e *core.Engine, name string, limits Func) rateLimit
}

var kinds = []kind{
	{
		"SlidingWindow",
		func(e *core.Engine, name string, l Limit, more ...Limit) rateLimit {
			return NewSlidingWindow(e, name, l, more...)
		},
		func(e *core.Engine, name string, by Func) rateLimit { return NewSlidingWindowBy(e, name, by) },
	},
	{
		"FixedWindow",
		func(e *core.Engine, name string, l Limit, more ...Limit) rateLimit {
			return NewFixedWindow(e, name, l, more...)
		},
		func(e *core.Engine, name string, by Func) rateLimit { return NewFixedWindowBy(e, name, by) },
	},
	{
		"TokenBucket",
		func(e *core.Engine, name string, l Limit, more ...Limit) rateLimit {
			return NewTokenBucket(e, name, l, more...)
		},
		func(e *core.Engine, name string, by Func) rateLimit { return NewTokenBucketBy(e, name, by) },
	},
}

// byParts is the sliding window that counts by 100 parts of its window, for tests of its cost and strictness.
var byParts = kind{
	"SlidingWindow by parts",
	func(e *core.Engine, name string, l Limit, more ...Limit) rateLimit {
		for i := range more {
			more[i].Resolution = 100
		}
		return NewSlidingWindow(e, name, l.WithResolution(100), more...)
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
var inMemory = redistest.Backend{Name: "memory"} // it has no Client

// eachKindEverywhere is eachKind with an engine without Redis added.
func eachKindEverywhere(t *testing.T, f func(t *testing.T, b redistest.Backend, k kind)) {
	t.Helper()
	for _, k := range kinds {
		t.Run(k.name+"/"+inMemory.Name, func(t *testing.T) { f(t, inMemory, k) })
	}
	eachKind(t, f)
}

func peek(t *testing.T, g rateLimit, a core.Attempt) core.Decision {
	t.Helper()
	d, err := g.Peek(t.Context(), a)
	if err != nil {
		t.Fatalf("Peek(%+v): %v", a, err)
	}
	return d
}

func refund(t *testing.T, g rateLimit, d core.Decision) {
	t.Helper()
	if err := g.Refund(t.Context(), d); err != nil {
		t.Fatalf("Refund(%+v): %v", d, err)
	}
}

// wantNoKeys fails when Redis holds a key of the attempt's actor and resource.
func wantNoKeys(t *testing.T, b redistest.Backend, g rateLimit, a core.Attempt) {
	t.Helper()
	if b.Client == nil {
		return
	}
	if n := b.Client.Exists(t.Context(), g.logKeys(a)...).Val(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}

// snapshot returns the contents of the keys, and on real servers their expiry times.
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
		g := k.make(guardtest.NewEngine(b, core.WithRefusalMemory(0)), "w", Per(2, time.Hour), Per(9, 24*time.Hour))
		a := core.Attempt{Actor: "a"}
		keys := g.logKeys(a)
		peek(t, g, a)
		if n := b.Client.Exists(t.Context(), keys...).Val(); n != 0 {
			t.Error("a peek has left a key")
		}
		guardtest.Check(t, g, a)
		before := snapshot(t, b, keys)
		guardtest.WantReason(t, peek(t, g, a), core.ReasonOK)
		guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 2})
		if after := snapshot(t, b, keys); !reflect.DeepEqual(after, before) {
			t.Errorf("the keys held %q and hold %q", before, after)
		}
		guardtest.Check(t, g, a)
		before = snapshot(t, b, keys)
		for range 5 {
			guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonLimited)
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 2}), core.ReasonLimited)
			guardtest.WantReason(t, peek(t, g, a), core.ReasonLimited)
		}
		if after := snapshot(t, b, keys); !reflect.DeepEqual(after, before) {
			t.Errorf("the keys held %q and hold %q", before, after)
		}
	})
}

func TestLimiterPeek(t *testing.T) {
	eachKindEverywhere(t, func(t *testing.T, b redistest.Backend, k kind) {
		clock := guardtest.NewClock()
		g := k.make(guardtest.NewEngine(b, guardtest.WithClock(clock)), "w", Per(3, time.Minute))
		a := core.Attempt{Actor: "a", Cost: 1 << 60} // a peek is for one unit
		for left := int64(3); left > 0; left-- {
			for range 2 {
				d := peek(t, g, a)
				guardtest.WantReason(t, d, core.ReasonOK)
				if d.Remaining != left || d.Limit != 3 || d.Window != time.Minute || d.Guard != "w" ||
					d.Attempt.Cost != 1 {
					t.Fatalf("%+v: want %d remaining", d, left)
				}
			}
			guardtest.Check(t, g, core.Attempt{Actor: "a"})
		}
		seen, decided := peek(t, g, a), guardtest.Check(t, g, core.Attempt{Actor: "a"})
		guardtest.WantReason(t, seen, core.ReasonLimited)
		if seen.RetryAfter != decided.RetryAfter || seen.RetryAfter == 0 || seen.Remaining != 0 {
			t.Errorf("peek %+v, check %+v", seen, decided)
		}
		clock.Advance(seen.RetryAfter - time.Microsecond)
		guardtest.WantReason(t, peek(t, g, a), core.ReasonLimited)
		clock.Advance(time.Microsecond)
		guardtest.WantReason(t, peek(t, g, a), core.ReasonOK)

		free := peek(t, g, core.Attempt{Actor: "b"})
		if err := g.Refund(t.Context(), free); !guardtest.IsInvalid(err) {
			t.Errorf("refund of a peek: %v", err)
		}
		if _, err := g.Peek(t.Context(), core.Attempt{}); !guardtest.IsInvalid(err) {
			t.Errorf("no actor: %v", err)
		}
	})
}

func TestLimiterReset(t *testing.T) {
	eachKindEverywhere(t, func(t *testing.T, b redistest.Backend, k kind) {
		clock := guardtest.NewClock()
		g := k.make(guardtest.NewEngine(b, guardtest.WithClock(clock)), "w", Per(2, time.Minute), Per(4, time.Hour))
		a := core.Attempt{Actor: "a", Resource: "r"}
		other := core.Attempt{Actor: "a", Resource: "s"}
		first := guardtest.Check(t, g, a)
		guardtest.Check(t, g, a)
		guardtest.Check(t, g, core.Attempt{Actor: "a", Resource: "s", Cost: 2})
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonLimited)
		for range 2 {
			if err := g.Reset(t.Context(), core.Attempt{Actor: "a", Resource: "r", Cost: -1}); err != nil {
				t.Fatal(err)
			}
			wantNoKeys(t, b, g, a)
		}
		guardtest.WantReason(t, guardtest.Check(t, g, other), core.ReasonLimited)
		clock.Advance(time.Millisecond) // a sliding window knows its units by their moment
		if d := guardtest.Check(t, g, a); d.Remaining != 1 {
			t.Errorf("%+v: want 1 remaining", d)
		}
		refund(t, g, first) // Reset removed the units, so there is nothing to give back
		if d := guardtest.Check(t, g, a); d.Remaining != 0 {
			t.Errorf("%+v: want 0 remaining", d)
		}
		if err := g.Reset(t.Context(), core.Attempt{}); !guardtest.IsInvalid(err) {
			t.Errorf("no actor: %v", err)
		}
	})
}

func TestLimiterRefund(t *testing.T) {
	eachKindEverywhere(t, func(t *testing.T, b redistest.Backend, k kind) {
		clock := guardtest.NewClock()
		e := guardtest.NewEngine(b, guardtest.WithClock(clock))
		g := k.make(e, "w", Per(4, time.Minute), Per(5, time.Hour))
		a := core.Attempt{Actor: "a"}
		first := guardtest.Check(t, g, a)
		second := guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 2})
		third := guardtest.Check(t, g, a)
		refused := guardtest.Check(t, g, a)
		guardtest.WantReason(t, refused, core.ReasonLimited)
		for range 3 {
			refund(t, g, second)
			guardtest.Settle(t, g, second, core.Rollback)
		}
		guardtest.Settle(t, g, third, core.Commit)
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
		d := guardtest.Check(t, g, a)
		refund(t, g, third)
		refund(t, g, first)
		if d := peek(t, g, a); d.Remaining != 3 {
			t.Errorf("%+v: want 3 remaining: a unit was given back twice", d)
		}
		clock.Advance(2 * time.Hour) // all its units have come back
		guardtest.Check(t, g, a)
		refund(t, g, d)
		if d := peek(t, g, a); d.Remaining != 3 {
			t.Errorf("%+v: want 3 remaining: units that came back by themselves were given back again", d)
		}

		other := k.make(e, "other", Per(4, time.Minute))
		for _, d := range []core.Decision{guardtest.Check(t, other, a), {Guard: "w", Allowed: true, Attempt: a},
			{Allowed: true}} {
			if err := g.Refund(t.Context(), d); !guardtest.IsInvalid(err) {
				t.Errorf("refund of %+v: %v", d, err)
			}
		}
	})
}

// Promise: Several limits are all or nothing. The answer names the binding one.
func TestLimiterSeveralLimitsAllOrNothing(t *testing.T) {
	eachKindEverywhere(t, func(t *testing.T, b redistest.Backend, k kind) {
		clock := guardtest.NewClock()
		g := k.make(guardtest.NewEngine(b, guardtest.WithClock(clock)), "w", Per(100, 24*time.Hour),
			Per(2, time.Minute), Per(3, time.Hour))
		a := core.Attempt{Actor: "a"}
		if d := guardtest.Check(t, g, a); d.Limit != 2 || d.Remaining != 1 {
			t.Fatalf("%+v: want 1 of 2 remaining", d)
		}
		guardtest.Check(t, g, a)
		for range 5 {
			if d := guardtest.Check(t, g, a); d.Allowed || d.Limit != 2 || d.RetryAfter > time.Minute {
				t.Fatalf("%+v: want the limit per minute to refuse", d)
			}
		}
		clock.Advance(time.Minute)
		if d := guardtest.Check(t, g, a); !d.Allowed || d.Limit != 3 || d.Remaining != 0 {
			t.Fatalf("%+v: want 0 of 3 remaining", d)
		}
		clock.Advance(time.Minute)
		for range 5 {
			if d := guardtest.Check(t, g, a); d.Allowed || d.Limit != 3 || d.RetryAfter <= time.Minute {
				t.Fatalf("%+v: want the limit per hour to refuse", d)
			}
		}
		if d := guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 3}); d.Reason != core.ReasonOverLimit ||
			d.Limit != 2 {
			t.Fatalf("%+v: want over_limit", d)
		}
		clock.Advance(time.Hour)
		if d := guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 2}); !d.Allowed {
			t.Fatalf("%+v: the refused attempts have taken units", d)
		}
	})
}

func TestLimiterHostileText(t *testing.T) {
	eachKindEverywhere(t, func(t *testing.T, b redistest.Backend, k kind) {
		g := k.make(guardtest.NewEngine(b), "w", Per(1, time.Hour))
		for _, text := range guardtest.Hostile {
			for _, a := range []core.Attempt{{Actor: text}, {Actor: "x", Resource: text},
				{Actor: text, Resource: "x"}} {
				d := guardtest.Check(t, g, a)
				if !d.Allowed || guardtest.Check(t, g, a).Allowed {
					t.Errorf("%.40q has no counter of its own", text)
				}
				refund(t, g, d)
				guardtest.WantReason(t, peek(t, g, a), core.ReasonOK)
				guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
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
			guards[i] = k.make(guardtest.NewEngine(b), "w", Per(limit, 24*time.Hour))
		}
		var allowed atomic.Int64
		var all sync.WaitGroup
		for i := range calls {
			all.Go(func() {
				d, err := guards[i%clients].Check(t.Context(), core.Attempt{Actor: "a"})
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
		e := guardtest.NewEngine(b)
		for _, k := range kinds {
			for _, name := range []string{"a", "b"} {
				g := k.make(e, k.name+name, PerHour(1))
				guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "x"}), core.ReasonOK)
				guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "x"}), core.ReasonLimited)
			}
			// One name for two algorithms is possible in two processes only, such as an old and a new
			// version.
			guardtest.WantReason(t, guardtest.Check(t, k.make(guardtest.NewEngine(b), "same", PerHour(1)),
				core.Attempt{Actor: "x"}), core.ReasonOK)
		}
	})
}

// TestLimitersOfOneNameShareNoOtherLimit: in two processes, such as an old and a new version, a name may have
// other limits. Each algorithm has keys of its own, and each window where it is not a view of a log.
func TestLimitersOfOneNameShareNoOtherLimit(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		used := map[string]string{}
		for _, k := range kinds {
			for _, l := range []Limit{PerMinute(2), PerHour(2), Per(2, 60_001*time.Millisecond)} {
				what := fmt.Sprintf("%s %v", k.name, l)
				clock := guardtest.NewClock()
				g := k.make(guardtest.NewEngine(b, guardtest.WithClock(clock)), "api", l)
				key := g.logKeys(core.Attempt{Actor: "a"})[0]
				if other, taken := used[key]; taken && k.name != "SlidingWindow" {
					t.Errorf("%s and %s have one key", what, other)
				}
				used[key] = what
				a := core.Attempt{Actor: l.String()} // of one actor, a changed window takes over what was counted
				for want := int64(1); want >= 0; want-- {
					if d := guardtest.Check(t, g, a); !d.Allowed || d.Remaining != want {
						t.Errorf("%s: %+v, want %d remaining", what, d, want)
					}
				}
				guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonLimited)
			}
		}
	})
}

// TestLimiterLostReply: a check and a reset are sent only once, so at most one unit is lost; other calls may
// be sent again.
func TestLimiterLostReply(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		e := guardtest.NewEngine(b)
		for _, k := range kinds {
			g := k.make(e, k.name, PerDay(5))
			if err := e.Preload(t.Context()); err != nil {
				t.Fatal(err)
			}
			a := core.Attempt{Actor: "ann"}
			lost := func() {
				t.Helper()
				faults.SwallowReply("evalsha")
			}
			lost()
			if _, err := g.Check(t.Context(), a); err == nil {
				t.Errorf("%s: the lost reply was not reported: was the check sent again?", k.name)
			}
			d := guardtest.Check(t, g, a)
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
			if err := g.Reset(t.Context(), a); err == nil {
				t.Errorf("%s: the lost reply was not reported: was the reset sent again?", k.name)
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

// Promise (Every guard): A full Redis (`noeviction`) leaves nothing half written, by any guard.
func TestLimiterFullRedis(t *testing.T) {
	s := redistest.StartServer(t, "--maxmemory-policy", "noeviction")
	rdb := s.Client(t)
	e := core.New(rdb, core.WithObserver(guardtest.Ignore{}), core.WithDeadline(time.Minute))
	for _, k := range kinds {
		g := k.make(e, k.name, PerDay(5), Per(9, 48*time.Hour))
		a := core.Attempt{Actor: "a"}
		first := guardtest.Check(t, g, a)
		rdb.ConfigSet(t.Context(), "maxmemory", "1")
		if _, err := g.Check(t.Context(), a); err == nil || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("%s: a full Redis: %v, want its OOM error", k.name, err)
		}
		if err := g.Refund(t.Context(), first); err == nil {
			t.Errorf("%s: a full Redis stored a refund's mark", k.name)
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
		g := k.by(guardtest.NewEngine(b), "w", func(_ context.Context, a core.Attempt) ([]Limit, error) {
			if a.ID == "" || a.Cost < 1 {
				t.Errorf("%+v is not filled in", a)
			}
			return tiers[a.Resource], nil
		})
		if d := guardtest.Check(t, g, core.Attempt{Actor: "a", Resource: "free"}); d.Limit != 1 ||
			d.Remaining != 0 {
			t.Errorf("%+v", d)
		}
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "a", Resource: "free"}),
			core.ReasonLimited)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "a", Resource: "free", Cost: 2}),
			core.ReasonOverLimit)
		a := core.Attempt{Actor: "a", Resource: "paid"}
		d := guardtest.Check(t, g, a)
		if d.Limit != 3 || d.Remaining != 2 {
			t.Errorf("%+v", d)
		}
		delete(tiers, "paid") // a refund is by the limits that the attempt had
		refund(t, g, d)
		tiers["paid"] = []Limit{Per(3, time.Hour)}
		if d := peek(t, g, a); d.Remaining != 3 {
			t.Errorf("%+v: want 3 remaining", d)
		}
		guardtest.Check(t, g, a)
		if err := g.Reset(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if d := peek(t, g, a); d.Remaining != 3 {
			t.Errorf("%+v: want 3 remaining", d)
		}
	})
}

func TestInvalidLimitsByAttempt(t *testing.T) {
	broken := errors.New("the tiers are not loaded")
	for text, limits := range map[string][]Limit{
		"lets nobody in":        {PerHour(0)},
		"at most":               {PerHour(5), Per(1<<60, time.Minute)},
		"whole milliseconds":    {Per(1, 1500*time.Microsecond)},
		"8784h0m0s":             {Per(1, 367*24*time.Hour)},
		"keep the smaller":      {PerHour(5), PerHour(6)},
		broken.Error():          nil,
		core.ErrInvalid.Error(): nil,
	} {
		for _, k := range kinds {
			var failure error
			switch text {
			case broken.Error():
				failure = broken
			case core.ErrInvalid.Error():
				failure = fmt.Errorf("%w: no such tenant", core.ErrInvalid)
			}
			g := k.by(core.New(guardtest.NoClient{}, core.WithObserver(guardtest.Ignore{})), "w",
				func(context.Context, core.Attempt) ([]Limit, error) { return limits, failure })
			d, err := g.Check(t.Context(), core.Attempt{Actor: "a"})
			_, peeked := g.Peek(t.Context(), core.Attempt{Actor: "a"})
			for _, err := range []error{err, peeked, g.Reset(t.Context(), core.Attempt{Actor: "a"})} {
				if err == nil || !strings.Contains(err.Error(), text) ||
					guardtest.IsInvalid(err) != errors.Is(failure, core.ErrInvalid) {
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
	e := core.New(b.Client, core.WithDeadline(20*time.Millisecond), core.WithObserver(guardtest.Ignore{}))
	g := NewSlidingWindowBy(e, "w", func(ctx context.Context, _ core.Attempt) ([]Limit, error) {
		<-ctx.Done()
		return []Limit{PerHour(1)}, nil
	})
	if d, err := g.Check(t.Context(), core.Attempt{Actor: "a"}); d.Allowed ||
		!errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestLimitChangedAtRunTime: used units keep counting, however a limit is changed.
func TestLimitChangedAtRunTime(t *testing.T) {
	eachKindEverywhere(t, func(t *testing.T, b redistest.Backend, k kind) {
		clock := guardtest.NewClock()
		var limits []Limit
		g := k.by(guardtest.NewEngine(b, guardtest.WithClock(clock)), "w",
			func(context.Context, core.Attempt) ([]Limit, error) { return limits, nil })
		bucket := k.name == "TokenBucket"
		take := func(want, remaining int64) {
			t.Helper()
			var n int64
			for ; n < 1000; n++ {
				if d := guardtest.Check(t, g, core.Attempt{Actor: "a"}); !d.Allowed {
					if d.RetryAfter <= 0 || d.RetryAfter > time.Hour {
						t.Errorf("%+v: locked out", d)
					}
					break
				}
			}
			if n != want {
				t.Fatalf("%v: %d attempts were allowed, want %d", limits, n, want)
			}
			if d := peek(t, g, core.Attempt{Actor: "a"}); d.Remaining != remaining {
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
		limits = []Limit{PerHour(4)} // lowered below the units in use
		take(0, 0)
		limits = []Limit{PerHour(20)} // and back
		take(0, 0)
		limits = []Limit{PerHour(20), Per(5, time.Minute)} // one more window
		take(0, 0)
		limits = []Limit{PerHour(4)}
		clock.Advance(time.Hour)
		take(4, 0)

		limits = []Limit{PerHour(20), Per(3, time.Minute)}
		clock.Advance(30 * time.Minute)
		take(3, 0)
		limits = limits[:1] // one window less
		if bucket {
			take(7, 0) // half full, minus the three
		} else {
			take(13, 0) // minus the four and the three
		}
	})
}

// stampOf returns when an allowed attempt took its units, 0 for a decision that took none.
func stampOf(d core.Decision) int64 {
	if took, ok := core.ClaimOf[*taken](d); ok {
		return took.stamp
	}
	return 0
}
