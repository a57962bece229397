package waitingroom

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// fill has visitors come, of whom the first enter.
func fill(t *testing.T, g *Guard, names ...string) (tokens []string) {
	t.Helper()
	tokens = make([]string, len(names))
	for i, name := range names {
		come(t, g, name, &tokens[i])
	}
	return tokens
}

func names(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint(prefix, i))
	}
	return names
}

// TestALowerCapacityThrowsNobodyOut, and lets nobody in until there is room; a higher one does at once.
//
// Promise: A lower capacity throws nobody out, and nobody enters until there is room.
func TestALowerCapacityThrowsNobodyOut(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		c := newCrowd(t, b, 2, 0, Options{Capacity: 30})
		c.stay, c.polite = forGood, true
		c.arrive(100)
		for range 22 { // a poll, and a tick
			c.second()
		}
		if c.valid() != 30 {
			t.Errorf("%d are inside, want 30", c.valid())
		}
		if err := c.rooms[1].SetCapacity(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
		if c.valid() != 30 {
			t.Errorf("%d of 30 are still inside", c.valid())
		}
		leave := 25
		for _, v := range c.visitors {
			if v.inside && leave > 0 {
				leave--
				v.leaves = c.clock.Now().Add(time.Duration(c.rng.Int64N(int64(20 * time.Second))))
			}
		}
		entered := c.entered
		for range 55 { // 20 s, 10 s until they ask, and a poll
			if c.entered > entered && c.valid() > 10 {
				t.Fatalf("%d are inside, and one more has entered", c.valid())
			}
			entered = c.entered
			c.second()
		}
		if c.valid() != 10 || entered != 35 {
			t.Errorf("%d are inside, and %d have entered, want 10 and 35", c.valid(), entered)
		}
		c.capacity = 50
		if err := c.rooms[0].SetCapacity(t.Context(), 50); err != nil {
			t.Fatal(err)
		}
		for range 22 {
			c.second()
		}
		if c.valid() != 50 {
			t.Errorf("%d are inside, want 50", c.valid())
		}
		if err := c.rooms[0].SetCapacity(t.Context(), -1); !errors.Is(err, core.ErrInvalid) {
			t.Error(err)
		}
	})
}

// TestPausedAndClosed: a pause lets nobody in, and a closed room tells all who ask, in all processes; when it
// opens again all have their places.
//
// Promise: A higher capacity, a pause and a closing hold in all processes from their next call on. The text
// of `Over` reaches everybody in line.
func TestPausedAndClosed(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		one := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)), Options{Capacity: 2})
		two := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)), Options{Capacity: 2})
		tokens := fill(t, one, "a", "b", "c", "d")
		tick(t, two)
		if err := one.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := one.Leave(t.Context(), core.Decision{Token: tokens[0]}); err != nil {
			t.Fatal(err)
		}
		tick(t, two)
		d := come(t, two, "c", &tokens[2])
		if p, _ := PlaceOf(d); p.State != paused || p.Position != 1 || d.Allowed {
			t.Errorf("%+v", d)
		}
		if err := two.Close(t.Context(), "sold out: {thank} you"); err != nil {
			t.Fatal(err)
		}
		tick(t, one)
		var new string
		for name, token := range map[string]*string{"d": &tokens[3], "new": &new} {
			d := come(t, one, name, token)
			p, _ := PlaceOf(d)
			if d.Reason != core.ReasonClosed || p.Text != "sold out: {thank} you" ||
				(d.RetryAfter > 0) != (name == "d") { // the line may go on for those who are in it
				t.Errorf("%s: %+v", name, d)
			}
		}
		guardtest.WantReason(t, come(t, one, "b", &tokens[1]), core.ReasonOK) // who is inside stays
		if err := one.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		tick(t, one)
		guardtest.WantReason(t, come(t, one, "d", &tokens[3]), ReasonWaiting)
		guardtest.WantReason(t, come(t, one, "c", &tokens[2]), core.ReasonOK)
	})
}

// TestALostRoomOpensAgain: after a flush nobody enters before the passes in hand have ended; then those who
// have numbers enter in their order, before new ones.
//
// Promise: A room that Redis has lost opens again in the old order, after each pass has ended.
func TestALostRoomOpensAgain(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		o := Options{Capacity: 2, Idle: 20 * time.Second, Pass: time.Minute, Poll: 4 * time.Second}
		one := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)), o)
		two := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)), o)
		tokens := fill(t, one, names("v", 8)...)
		tick(t, one)
		tick(t, two)
		if err := one.Delete(t.Context(), one.keys...); err != nil {
			t.Fatal(err)
		}
		var order []int
		for second := range 120 {
			if second == 3 {
				var new string
				tokens = append(tokens, new)
			}
			valid := 0
			for i := 2; i < len(tokens); i++ {
				d := come(t, []*Guard{one, two}[i%2], fmt.Sprint("v", i), &tokens[i])
				if d.Allowed && second < 19 {
					t.Fatalf("visitor %d entered after %d s", i, second)
				}
				if d.Allowed {
					order = append(order, i)
					if err := one.Leave(t.Context(), d); err != nil {
						t.Fatal(err)
					}
					tokens[i] = "x" // they come back as somebody new
				}
			}
			for _, token := range tokens[:2] {
				if d := guardtest.Check(t, one, core.Attempt{Actor: "v0", Token: token}); d.Allowed {
					valid++
				}
			}
			tick(t, one)
			tick(t, two)
			clock.Advance(time.Second)
		}
		if fmt.Sprint(order[:7]) != "[2 3 4 5 6 7 8]" {
			t.Errorf("entered %v", order)
		}
	})
}

// TestARoomThatNobodyKnows: with Redis and all processes gone, who asked first was first, 10,000 got places
// in front, and the others went to the end, for 910 kB. The first ticket brings the room back, in which all
// have their places; who came meanwhile is behind them, and nobody enters before the passes in hand have
// ended.
func TestARoomThatNobodyKnows(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		o := Options{Capacity: 1, Idle: 20 * time.Second, Poll: 4 * time.Second}
		one := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)), o)
		tokens := fill(t, one, names("v", 400)...)
		if err := one.Delete(t.Context(), one.keys...); err != nil {
			t.Fatal(err)
		}
		clock.Advance(10 * time.Second)
		two := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)), o)
		news := fill(t, two, "c", "d") // before anybody who has a ticket
		for i := len(tokens) - 1; i >= 0; i -= 3 {
			guardtest.Check(t, two, core.Attempt{Actor: fmt.Sprint("v", i), Token: tokens[i]})
		}
		var order []string
		for range 40 {
			for i := len(tokens) - 1; i > 0; i-- { // the last in line ask first
				if d := come(t, two, fmt.Sprint("v", i), &tokens[i]); d.Allowed {
					order = append(order, fmt.Sprint("v", i))
					if err := two.Leave(t.Context(), d); err != nil {
						t.Fatal(err)
					}
					tokens[i] = "x"
				}
			}
			if come(t, two, "d", &news[1]).Allowed || come(t, two, "c", &news[0]).Allowed {
				t.Fatal("who came meanwhile is inside")
			}
			tick(t, two)
			clock.Advance(time.Second)
		}
		if len(order) < 15 || !slices.Equal(order, names("v", len(order)+1)[1:]) {
			t.Errorf("entered %v", order)
		}
		if b.Mini != nil {
			return // it does not know how many bytes a key takes
		}
		if used, err := b.Client.MemoryUsage(t.Context(), two.keys[0], 0).Result(); err != nil || used > 2048 {
			t.Errorf("the room takes %d bytes: %v", used, err)
		}
	})
}

// TestNumbersThatAFailoverRepeats: the second holder of a number is next, not refused. Redis tells the two
// apart by a byte of their IDs.
func TestNumbersThatAFailoverRepeats(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)), Options{Capacity: 2})
		tokens := fill(t, g, "a", "b", "c", "d")
		tick(t, g)
		second, _ := g.tickets.read(tokens[1])
		second.id[0]++ // another byte
		second.who, second.end = whoOf("e"), 0
		token := g.tickets.sign(&second)
		guardtest.WantReason(t, come(t, g, "e", &token), ReasonWaiting)
		tick(t, g) // the number has been used, so Redis is asked
		guardtest.WantReason(t, come(t, g, "e", &token), ReasonWaiting)
		if err := g.Leave(t.Context(), core.Decision{Token: tokens[0]}); err != nil {
			t.Fatal(err)
		}
		tick(t, g)
		guardtest.WantReason(t, come(t, g, "c", &tokens[2]), ReasonWaiting)
		guardtest.WantReason(t, come(t, g, "e", &token), core.ReasonOK)
	})
}

// TestClocksThatJump: no pass becomes longer, and nobody enters who should not, when the server's clock is
// set back or forth.
func TestClocksThatJump(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		for _, jump := range []time.Duration{-24 * time.Hour, -3 * time.Second, 3 * time.Second, 24 * time.Hour} {
			clock := guardtest.NewClock()
			e := guardtest.NewEngine(b, guardtest.WithClock(clock))
			g := newRoom(e, Options{Capacity: 2, Pass: time.Minute, Idle: 30 * time.Second, Poll: 4 * time.Second})
			tokens := fill(t, g, "a", "b", "c")
			tick(t, g)
			clock.Advance(jump)
			passed, entered := time.Duration(0), false
			for range 70 {
				tick(t, g)
				for i, name := range []string{"a", "b"} {
					d := guardtest.Check(t, g, core.Attempt{Actor: name, Token: tokens[i]})
					if d.Allowed && passed > 61*time.Second {
						t.Fatalf("jump %v: %s is inside after %v", jump, name, passed)
					}
				}
				if come(t, g, "c", &tokens[2]).Allowed {
					entered = true
				}
				p, err := g.Peek(t.Context())
				if err != nil || p.Inside+p.Called > 2 {
					t.Fatalf("jump %v: %+v, %v", jump, p, err)
				}
				clock.Advance(time.Second)
				passed += time.Second
			}
			if !entered {
				t.Errorf("jump %v: c has not entered", jump)
			}
			if err := g.Delete(t.Context(), g.keys...); err != nil {
				t.Fatal(err)
			}
			e.Release("shop")
		}
	})
}

// TestWhileRedisIsDown: nobody enters, those who wait keep their places, passes go on until they end, and who
// has just come gets the rule's policy. Afterwards it goes on.
//
// Promise: While Redis is silent nobody enters, visitors in line and arrivals keep their numbers, and passes
// stay valid until they end.
func TestWhileRedisIsDown(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		client := b.NewClientWith(t, faults, func(o *redis.UniversalOptions) {
			o.MaxRetries, o.DialerRetries = -1, 1
		})
		clock := guardtest.NewClock()
		g := newRoom(guardtest.NewEngineOver(b, client, guardtest.WithClock(clock)),
			Options{Capacity: 1, Pass: 2 * time.Minute,
				Idle: 20 * time.Second, Poll: 4 * time.Second, Away: 5 * time.Minute})
		tokens := fill(t, g, "a", "b", "c")
		faults.Refuse(true)
		faults.CutAll()
		for range 100 {
			clock.Advance(time.Second)
			guardtest.WantReason(t, come(t, g, "a", &tokens[0]), core.ReasonOK)
			guardtest.WantReason(t, come(t, g, "b", &tokens[1]), ReasonWaiting)
			if d, err := g.Check(t.Context(), core.Attempt{Actor: "new"}); err == nil {
				t.Fatalf("%+v", d)
			}
			_ = g.tick(t.Context())
		}
		clock.Advance(30 * time.Second)
		if d := guardtest.Check(t, g, core.Attempt{Actor: "c", Token: tokens[2]}); d.Allowed {
			t.Errorf("%+v", d)
		}
		faults.Heal()
		redistest.Eventually(t, time.Minute, func() bool { return g.tick(t.Context()) == nil }, "Redis is back")
		tick(t, g)
		guardtest.WantReason(t, come(t, g, "b", &tokens[1]), core.ReasonOK)
		guardtest.WantReason(t, come(t, g, "a", &tokens[0]), ReasonWaiting) // her pass has ended
	})
}

// TestAProcessCallsOnceASecond, whatever its visitors ask, besides arrivals and entries.
func TestAProcessCallsOnceASecond(t *testing.T) {
	b := redistest.Single(t)
	client := &guardtest.Counting{Client: b.NewClient(t)}
	clock := guardtest.NewClock()
	g := newRoom(guardtest.NewEngineOver(b, client, guardtest.WithClock(clock), core.WithoutSharedCalls()),
		Options{Capacity: 100})
	tokens := fill(t, g, names("v", 500)...)
	tick(t, g)
	before := client.Sent.Load()
	for range 20 {
		for i := range tokens {
			come(t, g, fmt.Sprint("v", i), &tokens[i])
		}
		tick(t, g)
		clock.Advance(time.Second)
	}
	if calls := client.Sent.Load() - before; calls > 2*20 { // 400 who wait and 100 passes: two calls
		t.Errorf("%d calls for %d requests in 20 s", calls, 20*len(tokens))
	}
}

// TestWhoAsksAgainAtOnceCostsNoCall: between two pictures of the room, whoever may be next, or was away
// with a pass, asks Redis once, however often they ask here.
func TestWhoAsksAgainAtOnceCostsNoCall(t *testing.T) {
	b := redistest.Single(t)
	client := &guardtest.Counting{Client: b.NewClient(t)}
	clock := guardtest.NewClock()
	g := newRoom(guardtest.NewEngineOver(b, client, guardtest.WithClock(clock), core.WithoutSharedCalls()),
		Options{Capacity: 2, Pass: time.Minute, Idle: 10 * time.Second, Poll: time.Second, Away: time.Minute})
	ask := func(name string, token *string, times int) (calls int64) {
		before := client.Sent.Load()
		for range times {
			come(t, g, name, token)
		}
		return client.Sent.Load() - before
	}
	tokens := fill(t, g, "in", "away", "first", "second", "last") // the picture is of the empty room
	if calls := ask("first", &tokens[2], 1000) + ask("last", &tokens[4], 1000); calls > 0 {
		t.Errorf("who has just been told to wait: %d calls", calls)
	}
	clock.Advance(11 * time.Second) // the two passes have not been used
	tick(t, g)
	for i, want := range []int64{1, 0} { // of the two places, the last one in line has the other
		if calls := ask([]string{"first", "second"}[i], &tokens[2+i], 1000); calls != want {
			t.Errorf("%d calls, want %d", calls, want)
		}
	}
	if calls := ask("away", &tokens[1], 1000); calls != 1 {
		t.Errorf("who was away: %d calls", calls)
	}
	if calls := ask("last", &tokens[4], 1000); calls != 1 {
		t.Errorf("who was called: %d calls", calls)
	}
	clock.Advance(time.Second)
	tick(t, g)
	if calls := ask("away", &tokens[1], 1000) + ask("last", &tokens[4], 1000); calls != 1 { // of the pass
		t.Errorf("who waits: %d calls", calls)
	}
}

// TestManyComeAtOneMoment: arrivals share calls, and get numbers of their own.
func TestManyComeAtOneMoment(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		g := newRoom(guardtest.NewEngine(b, guardtest.SharedCalls()...), Options{Capacity: 10})
		var all sync.WaitGroup
		var mu sync.Mutex
		numbers, allowed := map[int64]bool{}, 0
		for i := range 500 {
			all.Go(func() {
				d, err := g.Check(t.Context(), core.Attempt{Actor: fmt.Sprint(i)})
				mu.Lock()
				defer mu.Unlock()
				ticket, ok := g.tickets.read(d.Token)
				if err != nil || !ok || numbers[ticket.index] {
					t.Errorf("%+v, %v", d, err)
				}
				numbers[ticket.index] = true
				if d.Allowed {
					allowed++
				}
			})
		}
		all.Wait()
		p, err := g.Peek(t.Context())
		if err != nil || p.Given != 500 || p.Inside+p.Called != 10 || int64(allowed) != p.Inside {
			t.Errorf("%+v, %v; %d allowed", p, err, allowed)
		}
	})
}

// TestAMillionWaitInAMegabyte: 10^5 in the short version.
func TestAMillionWaitInAMegabyte(t *testing.T) {
	b := redistest.Single(t)
	g := newRoom(guardtest.NewEngine(b), Options{Capacity: 2000})
	n := 100_000
	if guardtest.Soak() {
		n = 1_000_000
	}
	look := func() (bytes int64) {
		for _, key := range g.keys {
			used, err := b.Client.MemoryUsage(t.Context(), key, 0).Result()
			if err != nil && !errors.Is(err, redis.Nil) {
				t.Fatal(err)
			}
			bytes += used
		}
		return bytes
	}
	tokens := fill(t, g, names("v", 2000)...)
	for left := n; left > 0; left -= 500 {
		many := make([]any, 500)
		for i := range many {
			many[i] = 1
		}
		if _, err := g.run(t.Context(), joinScript, many...); err != nil {
			t.Fatal(err)
		}
	}
	bytes := look()
	t.Logf("%d wait, %d inside: %d bytes", n, len(tokens), bytes)
	if bytes > 1<<20+100*2000 {
		t.Errorf("%d bytes", bytes)
	}
}

// TestAPositionCostsNoCall, and is exact while few wait.
func TestAPositionIsExactWhileFewWait(t *testing.T) {
	b := redistest.Single(t)
	clock := guardtest.NewClock()
	g := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)), Options{Capacity: 1})
	rng := rand.New(rand.NewPCG(1, 2))
	tokens := fill(t, g, names("v", 900)...)
	tick(t, g)
	for range 100 {
		i := 1 + rng.IntN(899)
		d := come(t, g, fmt.Sprint("v", i), &tokens[i])
		if p, _ := PlaceOf(d); p.Position < int64(i)-8 || p.Position > int64(i)+8 {
			t.Errorf("visitor %d is at %d", i, p.Position)
		}
	}
}

// TestTheLastInLineAreNotToldTooLowAPosition: the last places that are counted together are fewer than the
// others.
func TestTheLastInLineAreNotToldTooLowAPosition(t *testing.T) {
	b := redistest.Single(t)
	clock := guardtest.NewClock()
	g := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)),
		Options{Capacity: 1, Draw: true, Opens: clock.Now().Add(time.Second)})
	tokens := fill(t, g, names("v", 1234)...)
	clock.Advance(time.Second)
	for range 3 { // all say that they are here, and nobody enters yet
		for i := range tokens {
			come(t, g, fmt.Sprint("v", i), &tokens[i])
		}
		clock.Advance(time.Second)
		tick(t, g)
	}
	for i := range tokens {
		p, _ := PlaceOf(come(t, g, fmt.Sprint("v", i), &tokens[i]))
		if want := int64(slices.Index(Draw(p.Seed, 1234), int(p.Number))) + 1; p.Position != want {
			t.Fatalf("visitor %d is at %d, want %d", i, p.Position, want)
		}
	}
}

// TestOptions: mistakes of set-up name the remedy.
func TestOptions(t *testing.T) {
	for text, o := range map[string]Options{
		"Capacity is 0":       {},
		"Pass is 1ms":         {Capacity: 1, Pass: time.Millisecond},
		"Idle is 1h0m0s":      {Capacity: 1, Idle: time.Hour},
		"Poll is 1ms":         {Capacity: 1, Poll: time.Millisecond},
		"set whole seconds":   {Capacity: 1, Poll: 1500 * time.Millisecond},
		"Grace is 1s":         {Capacity: 1, Grace: time.Second},
		"Keep is 1s":          {Capacity: 1, Keep: time.Second},
		"Secrets are missing": {Capacity: 1},
		"secret 1 has 1 byte": {Capacity: 1, Secrets: [][]byte{{1}}},
	} {
		guardtest.WantPanic(t, text, func() {
			New(core.New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})), "room", o)
		})
	}
	guardtest.WantPanic(t, "needs Redis", func() { New(core.NewMemory(), "room", Options{}) })
}

// TestHostileActors: any text is an actor.
func TestHostileActors(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newRoom(guardtest.NewEngine(b), Options{Capacity: 1})
		for _, actor := range []string{"{x}", "\x00", "\xff\xfe", strings.Repeat("long", 1<<18), "a b\r\n"} {
			token := ""
			come(t, g, actor, &token)
			if d := come(t, g, actor, &token); d.Reason == ReasonElsewhere || d.Token != "" && d.Allowed == false {
				t.Errorf("%.20q: %+v", actor, d)
			}
		}
		if _, err := g.Check(context.Background(), core.Attempt{}); !errors.Is(err, core.ErrInvalid) {
			t.Error(err)
		}
	})
}

// TestTheFirstWhoWaitsIsFirst: behind one who had entered since the last picture, they heard that they were
// second.
func TestTheFirstWhoWaitsIsFirst(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newRoom(guardtest.NewEngine(b, guardtest.WithClock(guardtest.NewClock())), Options{Capacity: 1})
		for i, name := range []string{"a", "b", "c"} {
			var token string
			d := come(t, g, name, &token)
			if p, waits := PlaceOf(d); d.Allowed != (i == 0) || waits && p.Position != int64(i) {
				t.Errorf("%s: allowed: %t, position %d", name, d.Allowed, p.Position)
			}
		}
	})
}

// TestThoseWhoWaitHearThatItIsOver, without a call for each; when there is something again, the line goes on.
// While the application cannot tell, its last word counts.
func TestThoseWhoWaitHearThatItIsOver(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		var text string
		var failure error
		asked := 0
		c := newCrowd(t, b, 1, 0, Options{Capacity: 2, Over: func(context.Context) (string, error) {
			asked++
			return text, failure
		}})
		g := c.rooms[0]
		tokens := fill(t, g, names("v", 20)...)
		beats := func(n int) {
			for range n {
				c.second()
			}
		}
		reason := func(i int) core.Decision { return come(t, g, fmt.Sprint("v", i), &tokens[i]) }
		text = "Sold out, 谢谢"
		beats(2)
		before := asked
		for i := 2; i < 20; i++ {
			d := reason(i)
			if place, _ := PlaceOf(d); d.Reason != core.ReasonClosed || place.Text != text || d.RetryAfter == 0 {
				t.Errorf("visitor %d: %+v, %+v", i, d, place)
			}
		}
		if d := reason(0); !d.Allowed {
			t.Errorf("a pass ended with the sale: %+v", d)
		}
		var nothing string
		if d := come(t, g, "late", &nothing); d.Reason != core.ReasonClosed || nothing != "" {
			t.Errorf("who comes now: %+v", d)
		}
		if asked > before+1 {
			t.Errorf("the application was asked %d times at one moment", asked-before)
		}
		if s, err := g.Peek(t.Context()); err != nil || s.State != "closed" || s.Text != text {
			t.Errorf("%+v, %v", s, err)
		}
		text, failure = "", errors.New("the shop does not answer")
		beats(2)
		if d := reason(5); d.Reason != core.ReasonClosed {
			t.Errorf("with a failure: %+v", d)
		}
		failure = nil
		beats(2)
		if d := reason(5); d.Allowed || d.Reason != ReasonWaiting {
			t.Errorf("with stock again: %+v", d)
		}
	})
}

// TestWhoWasCalledAndDidNotCome is counted.
func TestWhoWasCalledAndDidNotCome(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		c := newCrowd(t, b, 1, 0, Options{Capacity: 2, Pass: 10 * time.Second})
		g := c.rooms[0]
		fill(t, g, names("v", 7)...)
		for range 120 {
			c.second()
		}
		s, err := g.Peek(t.Context())
		if err != nil || s.Entered != 2 || s.Missed == 0 || s.Missed > 5 || s.Called != 0 {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// BenchmarkArrivals has many visitors come at the same time.
func BenchmarkArrivals(b *testing.B) {
	g, _ := benchRoom(b)
	b.SetParallelism(64)
	var n atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			d, err := g.Check(b.Context(), core.Attempt{Actor: strconv.FormatInt(n.Add(1), 10)})
			if err != nil || d.Reason != ReasonWaiting {
				b.Error(d, err)
			}
		}
	})
}

// BenchmarkPresence tells Redis of 500 visitors who wait.
func BenchmarkPresence(b *testing.B) {
	g, rdb := benchRoom(b)
	for range 1000 { // a million numbers
		if _, err := g.run(b.Context(), joinScript, 1000); err != nil {
			b.Fatal(err)
		}
	}
	places := make([]int64, most)
	before := cpuOf(b, rdb)
	for b.Loop() {
		for i := range places {
			places[i] = firstPlace + 2 + rand.Int64N(1e6)
		}
		if _, err := g.ask(b.Context(), places, nil); err != nil {
			b.Fatal(err)
		}
	}
	used := cpuOf(b, rdb) - before
	b.ReportMetric(used*1e6/most/float64(b.N), "redis-us/visitor")
}

func benchRoom(b *testing.B) (*Guard, redis.UniversalClient) {
	backend := redistest.Single(b)
	g := New(guardtest.NewEngine(backend, core.WithDeadline(time.Minute)), "shop",
		Options{Capacity: 1, Pass: time.Hour, Idle: time.Hour, Secrets: secrets})
	if d, err := g.Check(b.Context(), core.Attempt{Actor: "inside"}); err != nil || !d.Allowed {
		b.Fatal(d, err)
	}
	return g, backend.Client
}

// cpuOf returns the seconds of CPU that a server has used.
func cpuOf(b *testing.B, rdb redis.UniversalClient) (seconds float64) {
	info, err := rdb.Info(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			seconds += n
		}
	}
	return seconds
}

// TestEstimatesHaveNoPartThatIsAsMuchAsTheNext: a page that says a minute and 53 seconds does not go on to 113
// seconds when it asks again.
func TestEstimatesHaveNoPartThatIsAsMuchAsTheNext(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "PT0S", time.Millisecond: "PT1S", 59 * time.Second: "PT59S", 59*time.Second + 1: "PT1M0S",
		113 * time.Second: "PT1M53S", 2*time.Minute - 1: "PT2M0S", 2 * time.Minute: "PT2M",
		2*time.Minute + 1: "PT3M", 59 * time.Minute: "PT59M", 59*time.Minute + 1: "PT1H0M",
		119 * time.Minute: "PT1H59M", 50 * time.Hour: "PT50H0M",
	} {
		if got := iso(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
