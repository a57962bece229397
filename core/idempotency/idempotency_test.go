package idempotency

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// finish settles an allowed decision with an outcome.
func finish(t testing.TB, g *Guard, d core.Decision, o *core.Outcome) {
	t.Helper()
	if err := g.Settle(t.Context(), d, core.CommitWith(o)); err != nil {
		t.Fatal(err)
	}
}

// wantDone wants the attempt to be refused as done, with this outcome.
func wantDone(t *testing.T, g *Guard, a core.Attempt, want core.Outcome) {
	t.Helper()
	d := guardtest.Check(t, g, a)
	guardtest.WantReason(t, d, core.ReasonDone)
	if o := core.OutcomeOf(d); !d.Replayed || o == nil || o.Status != want.Status ||
		!maps.Equal(o.Header, want.Header) || o.Incomplete != want.Incomplete ||
		!bytes.Equal(o.Body, want.Body) {
		t.Errorf("the outcome is %+v, want %+v", core.OutcomeOf(d), want)
	}
}

var created = core.Outcome{Status: 201, Header: map[string]string{"Location": "/orders/7"},
	Body: []byte("{\"id\":7}\n\x00\xff")}

// Promise: An operation runs once. Repetitions get its answer.
func TestIdempotencyRunsOnce(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "i", Options{MaxBody: 100, Lease: time.Hour})
		a := core.Attempt{Actor: "ann", Resource: "orders", ID: "o1", Item: "one tv"}
		first := guardtest.Check(t, g, a)
		if guardtest.WantReason(t, first, core.ReasonOK); first.Replayed || first.ResetAfter != time.Hour {
			t.Errorf("%+v", first)
		}
		other := a
		other.Item = "two tvs"
		for range 2 {
			if d := guardtest.Check(t, g, a); d.Reason != core.ReasonInProgress || d.Allowed ||
				d.RetryAfter != time.Second || core.OutcomeOf(d) != nil {
				t.Errorf("while it runs: %+v", d)
			}
			guardtest.WantReason(t, guardtest.Check(t, g, other), core.ReasonConflict)
		}
		finish(t, g, first, &created)
		for range 2 {
			wantDone(t, g, a, created)
			guardtest.WantReason(t, guardtest.Check(t, g, other), core.ReasonConflict)
		}
		other = a
		other.Cost = 2
		guardtest.WantReason(t, guardtest.Check(t, g, other), core.ReasonConflict)
		for _, other := range []core.Attempt{
			{Actor: "bob", Resource: "orders", ID: "o1", Item: "one tv"},
			{Actor: "ann", Resource: "returns", ID: "o1", Item: "one tv"},
			{Actor: "ann", Resource: "orders", ID: "o2", Item: "one tv"},
		} {
			guardtest.WantReason(t, guardtest.Check(t, g, other), core.ReasonOK)
		}
		guardtest.Settle(t, g, first, core.Rollback) // too late
		finish(t, g, first, &core.Outcome{Status: 500})
		wantDone(t, g, a, created)
	})
}

// Promise: A failed operation begins anew.
func TestIdempotencyFailuresBeginAnew(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "i", Options{})
		a := core.Attempt{Actor: "ann", ID: "o1", Item: "one tv"}
		d := guardtest.Check(t, g, a)
		guardtest.Settle(t, g, d, core.Rollback)
		a.Item = "two tvs" // the failed attempt leaves no record
		again := guardtest.Check(t, g, a)
		guardtest.WantReason(t, again, core.ReasonOK)
		guardtest.Settle(t, g, d, core.Rollback) // again: it must not release another attempt
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonInProgress)
		finish(t, g, again, nil)
		wantDone(t, g, a, core.Outcome{})

		if err := g.Reset(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
	})
}

// TestIdempotencyLongBodies: a part of an answer would be wrong.
func TestIdempotencyLongBodies(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		for most, whole := range map[int][]string{4: {"", "\n", "four"}, -1: {""}, 0: {"five!"}} {
			g := New(guardtest.NewEngine(b), fmt.Sprintf("i%d", most), Options{MaxBody: most})
			for _, body := range []string{"", "\n", "four", "five!"} {
				a := core.Attempt{Actor: "ann", ID: "of " + body}
				finish(t, g, guardtest.Check(t, g, a), &core.Outcome{Status: 200, Body: []byte(body)})
				want := core.Outcome{Status: 200, Body: []byte(body)}
				if len(body) > len(whole[len(whole)-1]) {
					want = core.Outcome{Status: 200, Incomplete: true}
				}
				wantDone(t, g, a, want)
			}
		}
	})
}

// TestIdempotencyLease: an operation whose process died begins anew after the lease, and a process that was
// only paused does not overwrite the new outcome.
//
// Promise: An operation whose process died begins anew after the lease. A paused process cannot overwrite it.
func TestIdempotencyLease(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		brief := New(guardtest.NewEngine(b), "i", Options{Lease: 20 * time.Millisecond})
		long := New(guardtest.NewEngine(b), "i", Options{Lease: time.Hour}) // another process
		a := core.Attempt{Actor: "ann", ID: "o1"}
		paused := guardtest.Check(t, brief, a)
		guardtest.WantReason(t, paused, core.ReasonOK)
		var second core.Decision
		redistest.Eventually(t, time.Minute, func() bool {
			second = guardtest.Check(t, long, a)
			return second.Allowed
		}, "the lease is over")
		for range 2 { // while the second runs, and when it has ended
			if err := brief.Settle(t.Context(), paused, core.Commit); !errors.Is(err, core.ErrGone) {
				t.Errorf("Settle of the first: %v, want ErrGone", err)
			}
			guardtest.Settle(t, brief, paused, core.Rollback)
			finish(t, long, second, &created)
			wantDone(t, long, a, created)
		}

		// If no other attempt came meanwhile, the outcome is kept.
		a.ID = "o2"
		late := guardtest.Check(t, brief, a)
		redistest.Eventually(t, time.Minute, func() bool {
			return b.Client.Exists(t.Context(), brief.operationKeys(a)[0]).Val() == 0
		}, "the lease is over")
		finish(t, brief, late, &core.Outcome{Status: 202})
		wantDone(t, brief, a, core.Outcome{Status: 202})
	})
}

func TestIdempotencyKeysExpire(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "i", Options{Lease: time.Hour, Keep: 2 * time.Hour})
		a := core.Attempt{Actor: "ann", ID: "o1"}
		ttl := func(most time.Duration) {
			t.Helper()
			if ttl := b.Client.PTTL(t.Context(), g.operationKeys(a)[0]).Val(); ttl > most || ttl < most-time.Minute {
				t.Errorf("the key expires in %v, want %v", ttl, most)
			}
		}
		d := guardtest.Check(t, g, a)
		ttl(time.Hour)
		finish(t, g, d, nil)
		ttl(2 * time.Hour)
	})
}

// TestIdempotencyRefusalsWriteNothing: a refusal does not even extend the TTL.
func TestIdempotencyRefusalsWriteNothing(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "i", Options{})
		a := core.Attempt{Actor: "ann", ID: "o1", Item: "tv"}
		key := g.operationKeys(a)[0]
		contents := func() string {
			return b.Client.Get(t.Context(), key).Val() + b.Client.PExpireTime(t.Context(), key).Val().String()
		}
		d := guardtest.Check(t, g, a)
		for range 2 {
			before := contents()
			for _, item := range []string{"tv", "radio"} {
				if d := guardtest.Check(t, g, core.Attempt{Actor: "ann", ID: "o1", Item: item}); d.Allowed {
					t.Errorf("%+v", d)
				}
			}
			if after := contents(); after != before {
				t.Errorf("the key held %q and holds %q", before, after)
			}
			finish(t, g, d, &created)
		}
	})
}

// TestIdempotencyLostReply: go-redis sends the call again, and neither runs the operation twice nor locks the
// client out.
func TestIdempotencyLostReply(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		g := New(guardtest.NewEngine(b), "i", Options{})
		if err := g.Engine().Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		a := core.Attempt{Actor: "ann", ID: "o1"}
		faults.SwallowReply("evalsha")
		d := guardtest.Check(t, g, a)
		guardtest.WantReason(t, d, core.ReasonOK)
		faults.SwallowReply("evalsha")
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonInProgress)
		faults.SwallowReply("evalsha")
		guardtest.Settle(t, g, d, core.Rollback)
		faults.SwallowReply("evalsha")
		again := guardtest.Check(t, g, a)
		guardtest.WantReason(t, again, core.ReasonOK)
		faults.SwallowReply("evalsha")
		finish(t, g, again, &core.Outcome{Status: 204})
		faults.SwallowReply("evalsha")
		wantDone(t, g, a, core.Outcome{Status: 204})
		if n := faults.Swallowed(); n != 6 {
			t.Errorf("%d replies were swallowed", n)
		}
	})
}

// TestIdempotencyCancelledCheck: a client whose Check was cancelled is not locked out for the lease.
func TestIdempotencyCancelledCheck(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		witness := New(guardtest.NewEngine(b), "i", Options{})
		b.Client = b.NewClientWith(t, faults)
		g := New(guardtest.NewEngine(b), "i", Options{})
		if err := g.Engine().Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		guardtest.Check(t, g, core.Attempt{Actor: "bob", ID: "o1"}) // opens a connection
		faults.Hang(true)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		a := core.Attempt{Actor: "ann", ID: "o1"}
		go func() {
			_, err := g.Check(ctx, a)
			done <- err
		}()
		redistest.Eventually(t, time.Minute, func() bool { return begunBy(t, witness, a) },
			"the operation to begin")
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Check: %v", err)
		}
		faults.Hang(false)
		redistest.Eventually(t, time.Minute, func() bool { return !begunBy(t, witness, a) },
			"the operation to be given up")
		guardtest.WantReason(t, guardtest.Check(t, witness, a), core.ReasonOK)
	})
}

// TestIdempotencyReleaseThatOvertakes: a call that arrives after its release begins nothing.
func TestIdempotencyReleaseThatOvertakes(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "i", Options{})
		a, err := prepareOperation(core.Attempt{Actor: "ann", ID: "o1"})
		if err != nil {
			t.Fatal(err)
		}
		if err := g.release(t.Context(), a, true); err != nil {
			t.Fatal(err)
		}
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonGone)
		if ttl := b.Client.PTTL(t.Context(), g.operationKeys(a)[0]).Val(); ttl <= 0 || ttl > kit.TombstoneTTL {
			t.Errorf("what is void is remembered for %v", ttl)
		}
		a = a.WithoutCall()
		d := guardtest.Check(t, g, a) // another try
		guardtest.WantReason(t, d, core.ReasonOK)
		finish(t, g, d, nil)
		wantDone(t, g, a, core.Outcome{})
	})
}

// TestIdempotencyFullRedis: nothing begins, and what runs can end.
func TestIdempotencyFullRedis(t *testing.T) {
	s := redistest.StartServer(t, "--maxmemory-policy", "noeviction")
	rdb := s.Client(t)
	g := New(guardtest.NewEngine(redistest.Backend{Client: rdb, Prefix: "full"}), "i", Options{MaxBody: 100})
	ends, fails := guardtest.Check(t, g, core.Attempt{Actor: "ann", ID: "ends"}),
		guardtest.Check(t, g, core.Attempt{Actor: "ann", ID: "fails"})
	rdb.ConfigSet(t.Context(), "maxmemory", "1")
	if _, err := g.Check(t.Context(), core.Attempt{Actor: "ann", ID: "new"}); err == nil ||
		!strings.Contains(err.Error(), "OOM") {
		t.Errorf("a full Redis: %v, want its OOM error", err)
	}
	finish(t, g, ends, &created)
	guardtest.Settle(t, g, fails, core.Rollback)
	wantDone(t, g, core.Attempt{Actor: "ann", ID: "ends"}, created)
	rdb.ConfigSet(t.Context(), "maxmemory", "0")
	for _, id := range []string{"fails", "new"} {
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", ID: id}), core.ReasonOK)
	}
}

func TestIdempotencyRace(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		const tries = 100
		guards := [2]*Guard{}
		for i := range guards { // processes
			b.Client = b.NewClient(t)
			guards[i] = New(guardtest.NewEngine(b), "i", Options{Lease: time.Hour})
		}
		reasons := make([]core.Reason, tries)
		var all sync.WaitGroup
		for i := range tries {
			all.Go(func() {
				d, err := guards[i%2].Check(t.Context(), core.Attempt{Actor: "ann", ID: "o1"})
				if reasons[i] = d.Reason; err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		count := map[core.Reason]int{}
		for _, reason := range reasons {
			count[reason]++
		}
		if count[core.ReasonOK] != 1 || count[core.ReasonInProgress] != tries-1 {
			t.Errorf("%v: want one to begin", count)
		}
	})
}

func TestIdempotencyHostileText(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "i", Options{MaxBody: outcomeBodyMost})
		for _, text := range guardtest.Hostile {
			for i, a := range []core.Attempt{
				{Actor: text, Resource: "r", ID: "o", Item: "i"},
				{Actor: "a", Resource: text, ID: "o", Item: "i"},
				{Actor: "a", Resource: "r", ID: text, Item: "i"},
				{Actor: "a", Resource: "r", ID: "item of " + text, Item: text},
			} {
				d := guardtest.Check(t, g, a)
				guardtest.WantReason(t, d, core.ReasonOK) // so no other attempt has it
				o := core.Outcome{Status: 200 + i, Header: map[string]string{"Location": "/é\r\n\""}, Body: []byte(text)}
				finish(t, g, d, &o)
				wantDone(t, g, a, o)
			}
		}
	})
}

func TestIdempotencyInvalid(t *testing.T) {
	b := redistest.Mini(t)
	g := New(guardtest.NewEngine(b), "i", Options{})
	for _, a := range []core.Attempt{{Actor: "ann"}, {ID: "o1"}, {Actor: "ann", ID: "o1", Cost: -1}} {
		if _, err := g.Check(t.Context(), a); !guardtest.IsInvalid(err) {
			t.Errorf("%+v: %v", a, err)
		}
		if err := g.Reset(t.Context(),
			core.Attempt{Actor: a.Actor, ID: a.ID, Cost: a.Cost}); !guardtest.IsInvalid(err) {
			t.Errorf("Reset %+v: %v", a, err)
		}
	}
	for _, ok := range []bool{true, false} {
		if err := g.Settle(t.Context(),
			core.Decision{Guard: "i", Attempt: core.Attempt{Actor: "ann", ID: "o1"}, Allowed: true},
			guardtest.Ending(ok)); !guardtest.IsInvalid(err) {
			t.Errorf("a decision of nobody's: %v", err)
		}
		if err := g.Settle(t.Context(), core.Decision{Guard: "i"}, guardtest.Ending(ok)); err != nil {
			t.Errorf("a refusal: %v", err)
		}
	}
	d := guardtest.Check(t, g, core.Attempt{Actor: "ann", ID: "o1"})
	if err := b.Client.Set(t.Context(), g.operationKeys(d.Attempt)[0],
		"done c "+fingerprint(d.Attempt)+" rubbish", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	if d, err := g.Check(t.Context(), core.Attempt{Actor: "ann", ID: "o1"}); err == nil || d.Allowed {
		t.Errorf("an unreadable outcome: %+v, %v", d, err)
	}
}

func TestIdempotencySetUpMistakes(t *testing.T) {
	for text, options := range map[string]Options{
		"Lease is -1s:":                  {Lease: -time.Second},
		"Lease is 25h0m0s:":              {Lease: 25 * time.Hour},
		"Lease is 1.5ms:":                {Lease: 1500 * time.Microsecond},
		"Keep is 1ms:":                   {Keep: time.Millisecond},
		"Keep is 8784h0m1s:":             {Keep: kit.MaxTTL + time.Second},
		"MaxBody is 983041:":             {MaxBody: 960<<10 + 1},
		`bytes at most (guard "orders")`: {MaxBody: 1 << 20},
		"MaxActor is 4095: set 4096 to":  {MaxActor: 4095, MaxBody: -1},
		"MaxActor is 262143: set 262144": {MaxActor: 1<<18 - 1},
		"MaxActor is 17592186044417:":    {MaxActor: 1<<44 + 1},
		"MaxStored is 268435455: set":    {MaxStored: 1<<28 - 1},
		"MaxStored is 1125899906842625:": {MaxStored: 1<<50 + 1},
	} {
		guardtest.WantPanic(t, text, func() { New(core.New(guardtest.NoClient{}), "orders", options) })
	}
	guardtest.WantPanic(t, "idempotency: the guard", func() { New(core.NewMemory(), "orders", Options{}) })
}

// TestIdempotencyIsObserved: the observer receives every call.
func TestIdempotencyIsObserved(t *testing.T) {
	var h guardtest.Recorder
	g := New(guardtest.NewEngine(redistest.Mini(t), core.WithObserver(&h)), "i", Options{})
	a := core.Attempt{Actor: "ann", ID: "o1"}
	guardtest.Settle(t, g, guardtest.Check(t, g, a), core.Rollback)
	finish(t, g, guardtest.Check(t, g, a), &created)
	wantDone(t, g, a, created)
	if err := g.Reset(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	_ = g.Reset(t.Context(), core.Attempt{Actor: "ann"}) // an error, which is observed too
	var got []string
	for _, e := range h.Events {
		got = append(got, fmt.Sprint(e.Op, " ", e.Decision.Reason, " ", e.Err != nil))
	}
	want := "check ok false, settle  false, check ok false, settle ok false, check done false, reset  false, " +
		"reset  true"
	if got := strings.Join(got, ", "); got != want {
		t.Errorf("heard %s\nwant  %s", got, want)
	}
}

// TestIdempotencyAgainstModel: several processes begin, finish, fail and lose the lease at random; the test
// compares them with a model.
func TestIdempotencyAgainstModel(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "i", Options{Lease: time.Hour, MaxBody: 100})
		runs := 0
		rapid.Check(t, func(rt *rapid.T) {
			runs++
			type run struct {
				decision core.Decision
				body     string
			}
			var (
				begun  []run // all runs, each with its outcome
				holder = -1  // the index of the running one in Redis
				item   string
				done   *run
			)
			id := fmt.Sprint("run ", runs)
			rt.Repeat(map[string]func(*rapid.T){
				"check": func(rt *rapid.T) {
					a := core.Attempt{Actor: "ann", ID: id,
						Item: rapid.SampledFrom([]string{"tv", "radio"}).Draw(rt, "item")}
					d := guardtest.Check(t, g, a)
					want := core.ReasonOK
					switch {
					case holder < 0 && done == nil:
						begun = append(begun, run{d, fmt.Sprint("said by ", len(begun))})
						holder, item = len(begun)-1, a.Item
					case a.Item != item:
						want = core.ReasonConflict
					case done != nil:
						want = core.ReasonDone
					default:
						want = core.ReasonInProgress
					}
					if d.Reason != want || want == core.ReasonDone && string(core.OutcomeOf(d).Body) != done.body {
						rt.Fatalf("%+v (%+v), want %s (%+v)", d, core.OutcomeOf(d), want, done)
					}
				},
				"end": func(rt *rapid.T) {
					if len(begun) == 0 {
						rt.Skip("nothing runs")
					}
					i := rapid.IntRange(0, len(begun)-1).Draw(rt, "which")
					d, ok := begun[i].decision, rapid.Bool().Draw(rt, "ok")
					end := core.Rollback
					if ok {
						end = core.CommitWith(&core.Outcome{Body: []byte(begun[i].body)})
					}
					err := g.Settle(t.Context(), d, end)
					lost := ok && (holder >= 0 && holder != i || holder < 0 && done != nil && done.body != begun[i].body)
					if errors.Is(err, core.ErrGone) != lost || err != nil && !lost {
						rt.Fatalf("Settle(%t) of %d while %d runs: %v", ok, i, holder, err)
					}
					switch {
					case lost:
					case ok:
						if done == nil {
							item = d.Attempt.Item
						}
						holder, done = -1, &begun[i]
					case holder == i:
						holder = -1
					}
				},
				"the lease is over": func(rt *rapid.T) {
					if holder < 0 {
						rt.Skip("nothing runs")
					}
					if err := b.Client.Del(t.Context(),
						g.operationKeys(begun[holder].decision.Attempt)[0]).Err(); err != nil {
						rt.Fatal(err)
					}
					holder = -1
				},
			})
		})
	})
}

// FuzzOutcome: an outcome is read as it was stored, and no stored text breaks the reader.
func FuzzOutcome(f *testing.F) {
	f.Add(201, "Location", "/orders/7", []byte("{}\n"), "{}\n")
	f.Add(0, "", "", []byte(nil), "{\"status\":\"x\"}\n")
	f.Fuzz(func(t *testing.T, status int, name, value string, body []byte, stored string) {
		o := &core.Outcome{Status: status,
			Header: map[string]string{strings.ToValidUTF8(name, ""): strings.ToValidUTF8(value, "")}, Body: body}
		text, err := textOf(o, len(body))
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseOutcome(text)
		if err != nil || got.Status != o.Status || !maps.Equal(got.Header, o.Header) ||
			!bytes.Equal(got.Body, o.Body) {
			t.Errorf("%+v became %+v, %v", o, got, err)
		}
		_, _ = parseOutcome(stored)
	})
}

// begunBy reports whether Redis has the operation, and not a tombstone alone, asked by a guard with an
// undisturbed client.
func begunBy(t *testing.T, g *Guard, a core.Attempt) bool {
	t.Helper()
	value, err := g.Engine().Run(t.Context(), begunScript, g.operationKeys(a)[:1])
	if err != nil {
		t.Fatal(err)
	}
	return value == int64(1)
}

var begunScript = script.New("begun",
	"return string.find(redis.call('GET', KEYS[1]) or 'void', '^void') and 0 or 1", script.Idempotent)
