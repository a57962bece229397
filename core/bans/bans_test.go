package bans

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

func strike(t *testing.T, g *Guard, a core.Attempt) (banned bool) {
	t.Helper()
	banned, err := g.Strike(t.Context(), a)
	if err != nil {
		t.Fatalf("Strike(%+v): %v", a, err)
	}
	return banned
}

func status(t *testing.T, g *Guard, a core.Attempt) Status {
	t.Helper()
	s, err := g.Status(t.Context(), a)
	if err != nil {
		t.Fatalf("Status(%+v): %v", a, err)
	}
	return s
}

func ban(t *testing.T, g *Guard, a core.Attempt, length time.Duration) {
	t.Helper()
	if err := g.Ban(t.Context(), a, length); err != nil {
		t.Fatalf("Ban(%+v, %v): %v", a, length, err)
	}
}

func unban(t *testing.T, g *Guard, a core.Attempt) {
	t.Helper()
	if err := g.Unban(t.Context(), a); err != nil {
		t.Fatalf("Unban(%+v): %v", a, err)
	}
}

// strikeOut strikes an actor without strikes until they are banned, which must take Refusals plus one
// strikes.
func strikeOut(t *testing.T, g *Guard, a core.Attempt) {
	t.Helper()
	for n := range g.options.Refusals {
		if strike(t, g, a) {
			t.Fatalf("banned by strike %d of %d", n+1, g.options.Refusals)
		}
	}
	if !strike(t, g, a) {
		t.Fatalf("no ban after %d strikes", g.options.Refusals+1)
	}
}

// Promise: An actor refused more often than the options allow is banned. Bans double, and decay.
func TestBansWhoIsRefusedTooOften(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		for _, refusals := range []int64{1, 2, 1000} {
			g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), fmt.Sprintf("b%d", refusals),
				Options{Refusals: refusals, First: 90 * time.Second})
			a := core.Attempt{Actor: "a", Resource: "here"}
			first := guardtest.Check(t, g, a)
			guardtest.WantReason(t, first, core.ReasonOK)
			guardtest.WantSource(t, first, core.SourceRedis)
			strikeOut(t, g, a)
			elsewhere := guardtest.Check(t, g, core.Attempt{Actor: "a", Resource: "there", Cost: 5})
			guardtest.WantReason(t, elsewhere, core.ReasonBanned)
			guardtest.WantSource(t, elsewhere, core.SourceRemembered)
			if elsewhere.RetryAfter != 90*time.Second || elsewhere.Guard != g.Name() {
				t.Errorf("%+v: want to be told to wait for 90s", elsewhere)
			}
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "b", Resource: "here"}), core.ReasonOK)

			clock.Advance(90*time.Second - time.Microsecond)
			guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonBanned)
			clock.Advance(time.Microsecond)
			guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
		}
	})
}

// TestBansGrowAndDecay: with the example of Options, and with a cap that doubling does not hit exactly.
func TestBansGrowAndDecay(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		const m, h = time.Minute, time.Hour
		for i, c := range []struct {
			longest time.Duration
			// pauses after the end of a ban, each followed by the length of the next ban
			steps []time.Duration
		}{
			{10 * m, []time.Duration{0, m, 0, 2 * m, 0, 4 * m, h - 1000, 8 * m, 0, 10 * m, 0, 10 * m, h, 8 * m, 9 * h,
				m}},
			{24 * h, []time.Duration{0, m, 0, 2 * m, 0, 4 * m, h - 1000, 8 * m}},
			{24 * h, []time.Duration{0, m, 0, 2 * m, 0, 4 * m, h, 4 * m}},
			{24 * h, []time.Duration{0, m, 0, 2 * m, 0, 4 * m, 2 * h, 2 * m}},
			{24 * h, []time.Duration{0, m, 0, 2 * m, 0, 4 * m, 3 * h, m}},
			{m, []time.Duration{0, m, 0, m, 0, m}},
		} {
			clock := guardtest.NewClock()
			options := Options{Refusals: 2, First: m, Longest: c.longest, Decay: h}
			g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), fmt.Sprintf("b%d", i), options)
			a := core.Attempt{Actor: "a"}
			for j := 0; j < len(c.steps); j += 2 {
				clock.Advance(c.steps[j])
				strikeOut(t, g, a)
				before := guardtest.Check(t, g, a)
				if strike(t, g, a) || guardtest.Check(t, g, a).RetryAfter != before.RetryAfter {
					t.Errorf("row %d, ban %d: a strike while banned counts", i, j/2)
				}
				if want := c.steps[j+1]; before.RetryAfter != want {
					t.Errorf("row %d, ban %d: %v, want %v", i, j/2, before.RetryAfter, want)
				}
				clock.Advance(before.RetryAfter)
			}
		}
	})
}

// banOracle implements the promises of Options in plain steps.
type banOracle struct {
	Options
	strikes []time.Time
	end     time.Time
	level   int64
}

func (o *banOracle) levelAt(now time.Time) int64 {
	if now.Before(o.end) {
		return o.level
	}
	return max(o.level-int64(now.Sub(o.end)/o.Decay), 0)
}

func (o *banOracle) strikesAt(now time.Time) (n int64) {
	for _, at := range o.strikes {
		if now.Sub(at) < o.Period {
			n++
		}
	}
	return n
}

func (o *banOracle) ban(now time.Time, length time.Duration) {
	o.level, o.strikes = o.levelAt(now), nil
	o.end = now.Add(length)
}

func (o *banOracle) strike(now time.Time) (banned bool) {
	if now.Before(o.end) {
		return false
	}
	o.strikes = append(o.strikes, now)
	if o.strikesAt(now) <= o.Refusals {
		return false
	}
	length := min(o.First<<o.levelAt(now), o.Longest)
	o.ban(now, length)
	if length < o.Longest {
		o.level++
	}
	return true
}

// TestBansAgainstOracle: a process always knows its own bans at once, so Check is exact as well.
func TestBansAgainstOracle(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		engine := guardtest.NewEngine(b)
		number := 0
		rapid.Check(t, func(rt *rapid.T) {
			number++
			clock := guardtest.NewClock()
			core.WithClock(clock.Now)(engine)
			ms := func(name string) time.Duration {
				return time.Duration(rapid.IntRange(1, 5000).Draw(rt, name)) * time.Millisecond
			}
			o := &banOracle{Options: Options{
				Refusals: rapid.Int64Range(1, 4).Draw(rt, "refusals"),
				Period:   ms("period"), First: ms("first"), Longest: 30 * time.Second, Decay: ms("decay"),
			}}
			g := New(engine, fmt.Sprintf("b%d", number), o.Options)
			a := core.Attempt{Actor: "a"}
			for range rapid.IntRange(1, 60).Draw(rt, "steps") {
				clock.Advance(rapid.SampledFrom([]time.Duration{
					0, time.Microsecond, 100 * time.Millisecond, time.Second, o.Period / 2, o.Period, o.First, o.Decay,
					2 * o.Decay,
				}).Draw(rt, "pause"))
				switch rapid.SampledFrom([]string{"strike", "strike", "strike", "strike", "ban", "unban",
					"wait"}).Draw(rt, "step") {
				case "strike":
					if got, want := strike(t, g, a), o.strike(clock.Now()); got != want {
						rt.Fatalf("a strike bans: %t, want %t", got, want)
					}
				case "ban":
					length := ms("length")
					ban(t, g, a, length)
					o.ban(clock.Now(), length)
				case "unban":
					unban(t, g, a)
					*o = banOracle{Options: o.Options}
				case "wait":
					clock.Advance(max(o.end.Sub(clock.Now()), 0))
				}
				want := Status{
					Left: max(o.end.Sub(clock.Now()), 0), Level: o.levelAt(clock.Now()), Strikes: o.strikesAt(clock.Now()),
				}
				d := guardtest.Check(t, g, a)
				if d.RetryAfter != want.Left || d.Allowed != (want.Left == 0) {
					rt.Fatalf("%+v: want a ban of %v", d, want.Left)
				}
				if got := status(t, g, a); got != want {
					rt.Fatalf("status %+v, want %+v", got, want)
				}
				if n := b.Client.LLen(t.Context(), g.banKeys(a)[1]).Val(); n > o.Refusals {
					rt.Fatalf("%d strikes are kept, want at most %d", n, o.Refusals)
				}
			}
		})
	})
}

func TestBansByHand(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "b", Options{Refusals: 1, First: time.Minute})
		a := core.Attempt{Actor: "a"}
		// longer and shorter
		for _, length := range []time.Duration{time.Hour, 366 * 24 * time.Hour, time.Second, time.Millisecond} {
			ban(t, g, a, length)
			if got := status(t, g, a); got != (Status{Left: length}) {
				t.Errorf("banned for %v: %+v", length, got)
			}
			guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonBanned)
		}
		unban(t, g, a)
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
		strikeOut(t, g, a)
		unban(t, g, a)
		if got := status(t, g, a); got != (Status{}) {
			t.Errorf("after Unban: %+v, want no strikes and no level", got)
		}
		unban(t, g, a)

		for _, length := range []time.Duration{0, -time.Hour, time.Microsecond, 367 * 24 * time.Hour,
			math.MaxInt64} {
			if err := g.Ban(t.Context(), a, length); !guardtest.IsInvalid(err) {
				t.Errorf("Ban for %v: %v", length, err)
			}
		}
		_, checked := g.Check(t.Context(), core.Attempt{})
		_, struck := g.Strike(t.Context(), core.Attempt{})
		_, looked := g.Status(t.Context(), core.Attempt{})
		for i, err := range []error{checked, struck, looked, g.Ban(t.Context(), core.Attempt{}, time.Hour),
			g.Unban(t.Context(), core.Attempt{})} {
			if !guardtest.IsInvalid(err) {
				t.Errorf("call %d without an actor: %v", i, err)
			}
		}
	})
}

// TestBansAttack simulates clients of a limit of 5 per minute for half an hour, the way a rule with Bans
// does.
func TestBansAttack(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		const refusals, step = 10, 100 * time.Millisecond
		clock := guardtest.NewClock()
		e := guardtest.NewEngine(b, guardtest.WithClock(clock))
		site := limit.NewSlidingWindow(e, "site", limit.PerMinute(5))
		bans := New(e, "bans", Options{Refusals: refusals, First: time.Minute, Longest: 8 * time.Minute,
			Decay: time.Hour})
		request := func(actor string) core.Decision {
			a := core.Attempt{Actor: actor}
			if d := guardtest.Check(t, bans, a); !d.Allowed {
				return d
			}
			d := guardtest.Check(t, site, a)
			if !d.Allowed {
				strike(t, bans, a)
			}
			return d
		}

		// The attacker always sends, the eager client sends ten per minute above the limit, the quiet one rarely.
		var lengths []time.Duration
		refused, banned := 0, false
		for i := range int(30 * time.Minute / step) {
			d := request("attacker")
			switch {
			case d.Reason == core.ReasonLimited:
				refused++
			case d.Reason == core.ReasonBanned && !banned:
				if refused != refusals+1 {
					t.Errorf("banned after %d refusals, want %d", refused, refusals+1)
				}
				lengths = append(lengths, (d.RetryAfter + step).Round(step))
				refused = 0
			}
			banned = d.Reason == core.ReasonBanned
			if i%40 == 0 && request("eager").Reason == core.ReasonBanned {
				t.Fatalf("the eager client is banned after %v", time.Duration(i)*step)
			}
			if i%150 == 0 {
				guardtest.WantReason(t, request("quiet"), core.ReasonOK)
			}
			clock.Advance(step)
		}
		const m = time.Minute
		if want := []time.Duration{m, 2 * m, 4 * m, 8 * m,
			8 * m}; fmt.Sprint(lengths[:min(len(lengths), 5)]) != fmt.Sprint(want) {
			t.Errorf("bans of %v, want %v", lengths, want)
		}

		clock.Advance(8*time.Minute + 3*time.Hour) // all levels have decayed
		for !strike(t, bans, core.Attempt{Actor: "attacker"}) {
		}
		if d := guardtest.Check(t, bans, core.Attempt{Actor: "attacker"}); d.RetryAfter != m {
			t.Errorf("after 3 hours without refusals: %+v, want a ban of a minute", d)
		}
	})
}

// TestBansMakeFloodsCheap: 10,000 requests in 10 seconds cost the refusals up to the ban, and then one look
// per second.
//
// Promise: A flood of a banned actor costs one look-up per second.
func TestBansMakeFloodsCheap(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		const requests, rate, refusals = 10_000, 5, 10
		clock := guardtest.NewClock()
		client := &guardtest.Counting{Client: b.Client}
		e := core.New(client, core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute),
			guardtest.WithClock(clock))
		site, bans := limit.NewSlidingWindow(e, "site", limit.PerMinute(rate)),
			New(e, "bans", Options{Refusals: refusals})
		// Preload needs a client type of go-redis to reach all masters; its calls must not be counted.
		twin := guardtest.NewEngine(b)
		limit.NewSlidingWindow(twin, "site", limit.PerMinute(rate))
		New(twin, "bans", Options{})
		if err := twin.Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		reasons := map[core.Reason]int{}
		for range requests {
			a := core.Attempt{Actor: "attacker"}
			d := guardtest.Check(t, bans, a)
			if d.Allowed {
				if d = guardtest.Check(t, site, a); !d.Allowed {
					strike(t, bans, a)
				}
			}
			reasons[d.Reason]++
			clock.Advance(10 * time.Second / requests)
		}
		if reasons[core.ReasonOK] != rate || reasons[core.ReasonLimited] != refusals+1 {
			t.Errorf("%v: want %d ok and %d limited", reasons, rate, refusals+1)
		}
		// A look at the first request, a check until the limit refuses, a strike for each refusal, a look in each
		// second after.
		const want = 1 + rate + 1 + (refusals + 1) + 9
		if sent := client.Sent.Load(); sent != want {
			t.Errorf("%d requests cost %d calls, want %d", requests, sent, want)
		}
	})
}

// TestUnbanIsSeenElsewhereWithinASecond, and so is a ban.
//
// Promise: Other processes see a ban and an unban within a second.
func TestUnbanIsSeenElsewhereWithinASecond(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		here, there := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "b", Options{}),
			New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "b", Options{})
		a := core.Attempt{Actor: "a"}
		guardtest.WantReason(t, guardtest.Check(t, there, a), core.ReasonOK)
		ban(t, here, a, time.Hour)
		guardtest.WantReason(t, guardtest.Check(t, here, a), core.ReasonBanned)
		clock.Advance(banMemory - 1)
		guardtest.WantReason(t, guardtest.Check(t, there, a), core.ReasonOK) // not yet seen
		clock.Advance(1)
		guardtest.WantReason(t, guardtest.Check(t, there, a), core.ReasonBanned)

		unban(t, here, a)
		guardtest.WantReason(t, guardtest.Check(t, here, a), core.ReasonOK)
		clock.Advance(banMemory - 1)
		if d := guardtest.Check(t, there, a); d.RetryAfter != time.Hour-2*banMemory+1 {
			t.Errorf("%+v: want the rest of the hour, by what is remembered", d)
		}
		clock.Advance(1)
		guardtest.WantReason(t, guardtest.Check(t, there, a), core.ReasonOK)
	})
}

// TestLateAnswersDoNotUndoABan: replies to looks that were in flight when the actor was banned say "not
// banned", even the reply to a look that was sent after the ban and overtook it. Another reply says "banned"
// after an Unban.
func TestLateAnswersDoNotUndoABan(t *testing.T) {
	clock := guardtest.NewClock()
	g := New(core.New(guardtest.NoClient{}, guardtest.WithClock(clock)), "b", Options{})
	a := core.Attempt{Actor: "a"}
	wants := func(what string, left time.Duration, known bool) {
		t.Helper()
		if got, ok := g.recall(a); ok != known || got != left {
			t.Errorf("%s: remembered: %v, %t; want %v, %t", what, got, ok, left, known)
		}
	}
	early := g.ask(a)
	clock.Advance(time.Millisecond)
	ban := g.ask(a)
	overtakes := g.ask(a)
	g.remember(ban, time.Hour, true)
	g.remember(early, 0, false)
	g.remember(overtakes, 0, false)
	wants("banned", time.Hour, true)
	late := g.ask(a)
	g.remember(g.ask(a), 0, true)
	g.remember(late, time.Hour, false)
	wants("let in again", 0, true)

	ban, unban := g.ask(a), g.ask(a)
	g.remember(unban, 0, true)
	g.remember(ban, time.Hour, true)
	wants("banned and let in at once", 0, false)
}

// TestTheEndOfABanIsAskedFor: the remembered answer took time to arrive, so the ban ends slightly later than
// the memory says.
func TestTheEndOfABanIsAskedFor(t *testing.T) {
	clock := guardtest.NewClock()
	g := New(core.New(guardtest.NoClient{}, guardtest.WithClock(clock)), "b", Options{})
	a := core.Attempt{Actor: "a"}
	g.remember(g.ask(a), banMemory/2, false)
	clock.Advance(banMemory/2 - 1)
	if left, known := g.recall(a); !known || left != 1 {
		t.Errorf("just before the end: %v, %t", left, known)
	}
	clock.Advance(1)
	if left, known := g.recall(a); known {
		t.Errorf("at the end: %v is remembered", left)
	}
}

// lost is a client whose replies never arrive.
type lost struct{}

func (lost) Process(_ context.Context, cmd redis.Cmder) error {
	cmd.SetErr(io.ErrUnexpectedEOF)
	return cmd.Err()
}

// TestBansAfterALostReply: a ban and an Unban whose replies are lost may have been done, so the next check
// asks Redis.
func TestBansAfterALostReply(t *testing.T) {
	e := core.New(lost{}, core.WithDeadline(time.Second), core.WithObserver(guardtest.Ignore{}))
	g := New(e, "b", Options{})
	a := core.Attempt{Actor: "a"}
	for what, call := range map[string]func() error{
		"ban":   func() error { return g.Ban(t.Context(), a, time.Hour) },
		"unban": func() error { return g.Unban(t.Context(), a) },
	} {
		g.remember(g.ask(a), time.Minute, false)
		if err := call(); err == nil {
			t.Errorf("%s: no error", what)
		}
		if left, known := g.recall(a); known {
			t.Errorf("%s: %v is remembered", what, left)
		}
	}
}

func TestBansRememberABoundedNumberOfActors(t *testing.T) {
	g := New(core.New(guardtest.NoClient{}), "b", Options{})
	for i := range 2 * banActors {
		g.remember(g.ask(core.Attempt{Actor: fmt.Sprint(i)}), 0, false)
	}
	if n := g.known.Len(); n > banActors || n < banActors*9/10 {
		t.Errorf("%d actors are known, want about %d and no more", n, banActors)
	}
}

func TestBansCountEachStrikeOnce(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		const strikers, refusals = 100, 60
		g := New(guardtest.NewEngine(b), "b",
			Options{Refusals: refusals, Period: time.Hour, First: time.Hour, Longest: time.Hour})
		a := core.Attempt{Actor: "a"}
		var banned atomic.Int64
		var all sync.WaitGroup
		for range strikers {
			all.Go(func() {
				switch last, err := g.Strike(t.Context(), a); {
				case err != nil:
					t.Error(err)
				case last:
					banned.Add(1)
				}
			})
		}
		all.Wait()
		if n := banned.Load(); n != 1 {
			t.Errorf("%d strikes caused the ban, want 1", n)
		}
	})
}

// TestBansStrikeOnceWhenTheReplyIsLost: go-redis would send the strike again.
func TestBansStrikeOnceWhenTheReplyIsLost(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		g := New(guardtest.NewEngine(b), "b", Options{Period: time.Hour})
		a := core.Attempt{Actor: "a"}
		strike(t, g, a)
		faults.SwallowReply("evalsha")
		if _, err := g.Strike(t.Context(), a); err == nil || guardtest.IsInvalid(err) {
			t.Errorf("a strike whose reply was lost: %v", err)
		}
		if got := status(t, g, a); got.Strikes != 2 {
			t.Errorf("%+v, want 2 strikes", got)
		}
	})
}

// TestBansWithAClockSetBack: nobody is released before their ban has lasted its length, or banned for more
// than twice as long, however far the clock jumps. Strikes of unknown age ban nobody.
func TestBansWithAClockSetBack(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		const length = 10 * time.Minute
		for i, jump := range []time.Duration{time.Millisecond, time.Minute, length, time.Hour,
			10 * 366 * 24 * time.Hour} {
			clock := guardtest.NewClock()
			process := func() *Guard { // a process that remembers nothing
				return New(guardtest.NewEngine(b, guardtest.WithClock(clock)), fmt.Sprintf("b%d", i),
					Options{Refusals: 2, First: length, Period: time.Hour})
			}
			a, waited := core.Attempt{Actor: "a"}, 3*time.Minute
			strikeOut(t, process(), a)
			clock.Advance(waited - jump)
			for {
				d := guardtest.Check(t, process(), a)
				if d.Allowed {
					break
				}
				if d.RetryAfter > length {
					t.Fatalf("jump %v: %+v: want to wait no longer than the ban", jump, d)
				}
				if strike(t, process(), a) {
					t.Fatalf("jump %v: banned again", jump)
				}
				waited += d.RetryAfter
				clock.Advance(d.RetryAfter)
			}
			if waited < length || waited > 2*length {
				t.Errorf("jump %v: the ban lasted %v", jump, waited)
			}

			a = core.Attempt{Actor: "b"}
			strike(t, process(), a)
			strike(t, process(), a)
			clock.Advance(-jump)
			for strikes := range int64(3) { // the count begins again
				if got := status(t, process(), a); got != (Status{Strikes: strikes}) {
					t.Errorf("jump %v: %+v, want %d strikes", jump, got, strikes)
				}
				if banned := strike(t, process(), a); banned != (strikes == 2) {
					t.Errorf("jump %v: strike %d bans: %t", jump, strikes+1, banned)
				}
			}
		}
	})
}

// TestBansLiveAsLongAsTheirLevel lets the server's clock run out TTLs too.
func TestBansLiveAsLongAsTheirLevel(t *testing.T) {
	b := redistest.Mini(t)
	now := guardtest.NewClock()
	g := New(guardtest.NewEngine(b), "b",
		Options{Refusals: 1, Period: time.Minute, First: time.Minute, Decay: time.Hour})
	at := func(d time.Duration) { now.Advance(d); b.Mini.SetTime(now.Now()) }
	a := core.Attempt{Actor: "a"}
	at(0)
	for range 3 {
		strikeOut(t, g, a)
		at(status(t, g, a).Left)
	}
	for want := int64(3); want > 0; want-- {
		at(time.Hour - time.Millisecond)
		if got := status(t, g, a); got != (Status{Level: want}) {
			t.Errorf("%+v, want level %d", got, want)
		}
		at(time.Millisecond)
	}
	strike(t, g, a)
	at(time.Minute - time.Millisecond)
	if got := status(t, g, a); got != (Status{Strikes: 1}) {
		t.Errorf("%+v, want a strike that counts", got)
	}
	at(2 * time.Minute)
	if keys := b.Mini.Keys(); len(keys) > 0 {
		t.Errorf("keys left in Redis after everything has decayed: %q", keys)
	}
}

func TestBansHostileText(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "b", Options{})
		for _, text := range guardtest.Hostile {
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: text, Resource: text}), core.ReasonOK)
			ban(t, g, core.Attempt{Actor: text}, time.Hour)
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: text}), core.ReasonBanned)
		}
	})
}

func TestBansWithoutRedis(t *testing.T) {
	b := redistest.Mini(t)
	var h guardtest.Recorder
	g := New(guardtest.NewEngine(b, core.WithObserver(&h), core.WithDeadline(time.Minute)), "b", Options{})
	b.Mini.SetError("ERR down for the test") // which does not open the breaker
	if _, err := g.Check(t.Context(), core.Attempt{Actor: "a"}); err == nil || guardtest.IsInvalid(err) {
		t.Errorf("Check: %v", err)
	}
	if d := (core.Decision{}); g.Settle(t.Context(), d, core.Rollback) != nil ||
		g.Traits() != (core.Traits{KeepsOnFailure: true, Outage: core.FailOpen}) {
		t.Errorf("traits %+v", g.Traits())
	}
	b.Mini.SetError("")
	// an error is not remembered
	guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "a"}), core.ReasonOK)
	strike(t, g, core.Attempt{Actor: "a"})
	var ops []string
	for _, event := range h.Events {
		ops = append(ops, fmt.Sprint(event.Op, " ", event.Err == nil))
	}
	if got := strings.Join(ops, ", "); got != "check false, check true, strike true" {
		t.Errorf("the observer received %s", got)
	}
}

// TestBansFullRedis: looks still work, and a call that a full Redis rejects changes nothing.
func TestBansFullRedis(t *testing.T) {
	s := redistest.StartServer(t, "--maxmemory-policy", "noeviction")
	rdb := s.Client(t)
	g := New(core.New(rdb, core.WithObserver(guardtest.Ignore{}), core.WithDeadline(time.Minute)), "b",
		Options{Refusals: 1, Period: time.Hour})
	struck, banned := core.Attempt{Actor: "struck"}, core.Attempt{Actor: "banned"}
	strike(t, g, struck)
	ban(t, g, banned, time.Hour)
	rdb.ConfigSet(t.Context(), "maxmemory", "1")
	for actor, err := range map[string]error{
		"new":    func() error { _, err := g.Strike(t.Context(), core.Attempt{Actor: "new"}); return err }(),
		"struck": func() error { _, err := g.Strike(t.Context(), struck); return err }(),
		"banned": g.Ban(t.Context(), banned, time.Second),
	} {
		if err == nil || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("%s, with a full Redis: %v, want its OOM error", actor, err)
		}
	}
	if got := status(t, g, struck); got != (Status{Strikes: 1}) {
		t.Errorf("%+v, want the one strike of before", got)
	}
	if got := status(t, g, banned); got.Left < time.Minute {
		t.Errorf("%+v, want the ban of before", got)
	}
	unban(t, g, banned)
	rdb.ConfigSet(t.Context(), "maxmemory", "0")
}
