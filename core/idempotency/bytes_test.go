package idempotency

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// fill does operations of the actor with answers of this length until one is refused, 200 at most. It returns
// how many were done, and the refusal.
func fill(t *testing.T, g *Guard, actor string, body int) (done int, refusal core.Decision) {
	t.Helper()
	answer := core.Outcome{Status: 201, Header: map[string]string{"Location": "/orders/7"},
		Body: bytes.Repeat([]byte("x"), body)}
	for ; done < 200; done++ {
		d := guardtest.Check(t, g, core.Attempt{Actor: actor, ID: fmt.Sprint("o", done)})
		if !d.Allowed {
			return done, d
		}
		finish(t, g, d, &core.Outcome{Status: 201, Incomplete: true, Pending: true}) // as adapters do
		finish(t, g, d, &answer)
	}
	return done, refusal
}

// memory returns what Redis uses for the keys of the pattern.
func memory(t *testing.T, rdb redis.UniversalClient, pattern string) (sum int64) {
	t.Helper()
	for _, key := range rdb.Keys(t.Context(), pattern).Val() {
		sum += rdb.MemoryUsage(t.Context(), key, 0).Val()
	}
	return sum
}

// TestOneLoginDoesNotFillRedis: an actor sent 144 bytes a request, whose answers took 82,096 bytes each for a
// day, until Redis was full for all other guards.
func TestOneLoginDoesNotFillRedis(t *testing.T) {
	server := redistest.StartServer(t)
	b := redistest.Backend{Client: server.Client(t), Prefix: "fill"}
	g := New(guardtest.NewEngine(b), "i", Options{})
	done, d := fill(t, g, "eve", 64<<10)
	used := memory(t, b.Client, "fill:*")
	t.Logf("%d operations, %d bytes: %s", done, used, d.Reason)
	if used > 4<<20 || used < 2<<20-100<<10 {
		t.Errorf("one actor's %d operations take %d bytes, want 2 MiB of answers, 4 MiB at most", done, used)
	}
}

// TestAnActorThatStoresTooMuchIsRefused, nobody else is, nothing is done twice, and the actor has room again
// when the answers expire.
//
// Promise: An actor stores no more than `MaxActor`. At the bound new operations are refused; running ones
// end.
func TestAnActorThatStoresTooMuchIsRefused(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		var log bytes.Buffer
		logger := core.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))
		g := New(guardtest.NewEngine(b, core.WithClock(clock.Now), logger), "i",
			Options{MaxBody: 2 << 10, MaxActor: 16 << 10, Keep: time.Hour})
		done, refusal := fill(t, g, "eve", 1500)
		guardtest.WantReason(t, refusal, core.ReasonQuota)
		if refusal.RetryAfter <= 0 || refusal.RetryAfter > time.Hour+time.Hour/8 {
			t.Errorf("RetryAfter is %v, want Keep and an eighth at most", refusal.RetryAfter)
		}
		if done < 10 || done > 40 {
			t.Errorf("%d operations were done in 16 KiB", done)
		}
		whole := 0
		for i := range done { // each is done once
			d := guardtest.Check(t, g, core.Attempt{Actor: "eve", ID: fmt.Sprint("o", i)})
			guardtest.WantReason(t, d, core.ReasonDone)
			o := core.OutcomeOf(d)
			switch {
			case o == nil || o.Status != 201 || o.Header["Location"] != "/orders/7":
				t.Fatalf("operation %d: %+v, want the status and the Location", i, o)
			case len(o.Body) == 1500:
				whole++
			case !o.Incomplete || len(o.Body) > 0:
				t.Errorf("operation %d: %+v, want all of the answer, or nothing", i, o)
			}
		}
		if whole < 2 || whole > 4 {
			t.Errorf("%d answers were kept in 8 KiB", whole)
		}
		refused := core.Attempt{Actor: "eve", ID: "new"}
		keys := g.operationKeys(refused)
		stored := func() string {
			return fmt.Sprint(b.Client.Exists(t.Context(), keys[0]).Val(),
				b.Client.HGetAll(t.Context(), keys[1]).Val(), b.Client.HGetAll(t.Context(), keys[2]).Val())
		}
		before := stored()
		for range 5 {
			guardtest.WantReason(t, guardtest.Check(t, g, refused), core.ReasonQuota)
		}
		if after := stored(); after != before || after[0] != '0' {
			t.Errorf("refused attempts changed %s into %s", before, after)
		}
		for _, text := range []string{"MaxActor", "kept without its answer"} { // not one per request
			if n := strings.Count(log.String(), text); n != 1 {
				t.Errorf("%d lines with %q, want one:\n%s", n, text, log.String())
			}
		}
		for i := range 20 { // others, also those of eve's part
			d := guardtest.Check(t, g, core.Attempt{Actor: fmt.Sprint("ann", i), ID: "o1"})
			guardtest.WantReason(t, d, core.ReasonOK)
			finish(t, g, d, &created)
			wantDone(t, g, core.Attempt{Actor: fmt.Sprint("ann", i), ID: "o1"}, created)
		}
		clock.Advance(refusal.RetryAfter)
		a := core.Attempt{Actor: "eve", ID: "later"}
		d := guardtest.Check(t, g, a)
		guardtest.WantReason(t, d, core.ReasonOK)
		long := core.Outcome{Status: 200, Body: bytes.Repeat([]byte("y"), 1500)}
		finish(t, g, d, &long)
		wantDone(t, g, a, long)
	})
}

// TestManyActorsDoNotFillRedis: a part of the guard is bounded as each actor is.
//
// Promise: All actors store no more than `MaxStored`. Beyond half, operations are kept without their answers.
// Nothing runs twice.
func TestManyActorsDoNotFillRedis(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, core.WithClock(clock.Now)), "i",
			Options{MaxBody: 2 << 10, MaxActor: 8 << 10, MaxStored: 64 * 16 << 10, Keep: time.Hour})
		var refusal core.Decision
		part := partOf("eve")
		actors := []string{}
		for i := 0; refusal.Reason != core.ReasonNotReady; i++ {
			if i == 10_000 {
				t.Fatal("the part is not full")
			}
			if actor := fmt.Sprint("eve", i); partOf(actor) == part {
				_, refusal = fill(t, g, actor, 1000)
				actors = append(actors, actor)
			}
		}
		if len(actors) < 2 || refusal.RetryAfter <= 0 || refusal.RetryAfter > time.Hour+time.Hour/8 {
			t.Errorf("%d actors filled the part: %+v", len(actors), refusal)
		}
		d := guardtest.Check(t, g, core.Attempt{Actor: actors[0], ID: "o0"}) // retries have their answers
		guardtest.WantReason(t, d, core.ReasonDone)
		for i := range 100 {
			want := core.ReasonOK
			if partOf(fmt.Sprint("ann", i)) == part {
				want = core.ReasonNotReady
			}
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: fmt.Sprint("ann", i), ID: "o1"}), want)
		}
		clock.Advance(refusal.RetryAfter)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "eve", ID: "later"}), core.ReasonOK)
	})
}

// TestCountersExpireWithWhatTheyCount: bytes that have left Redis are not counted for longer than an eighth
// of Keep, and a counter never piles up.
func TestCountersExpireWithWhatTheyCount(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, core.WithClock(clock.Now)), "i", Options{Keep: 8 * time.Hour})
		for i := range 30 {
			a := core.Attempt{Actor: "ann", ID: fmt.Sprint("o", i)}
			finish(t, g, guardtest.Check(t, g, a), &created)
			finish(t, g, guardtest.Check(t, g, core.Attempt{Actor: "ann", ID: fmt.Sprint("p", i)}), &created)
			for _, counter := range g.operationKeys(a)[1:] {
				if n := b.Client.HLen(context.Background(), counter).Val(); n > 9 || i > 8 && n < 8 {
					t.Errorf("after %d hours the counter %s has %d moments", i, counter, n)
				}
				if ttl := b.Client.PTTL(t.Context(), counter).Val(); ttl < 8*time.Hour-time.Minute ||
					ttl > 9*time.Hour {
					t.Errorf("the counter expires in %v", ttl)
				}
			}
			clock.Advance(time.Hour)
		}
	})
}
