package core

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

	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

// finish settles an allowed decision with an outcome.
func finish(t testing.TB, g *Idempotency, d Decision, o *Outcome) {
	t.Helper()
	d.Outcome = o
	if err := g.Settle(t.Context(), d, true); err != nil {
		t.Fatal(err)
	}
}

// wantDone wants the attempt to be refused because it is done, with this outcome.
func wantDone(t *testing.T, g *Idempotency, a Attempt, want Outcome) {
	t.Helper()
	d := check(t, g, a)
	wantReason(t, d, ReasonDone)
	if o := d.Outcome; !d.Replayed || o == nil || o.Status != want.Status || !maps.Equal(o.Header, want.Header) ||
		!bytes.Equal(o.Body, want.Body) {
		t.Errorf("the outcome is %+v, want %+v", d.Outcome, want)
	}
}

var created = Outcome{Status: 201, Header: map[string]string{"Location": "/orders/7"}, Body: []byte("{\"id\":7}\n\x00\xff")}

func TestIdempotencyDoesOnce(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Idempotency("i", IdempotencyOptions{MaxBody: 100, Lease: time.Hour})
		a := Attempt{Actor: "ann", Resource: "orders", ID: "o1", Item: "one tv"}
		first := check(t, g, a)
		if wantReason(t, first, ReasonOK); first.Replayed || first.ResetAfter != time.Hour {
			t.Errorf("%+v", first)
		}
		other := a
		other.Item = "two tvs"
		for range 2 {
			if d := check(t, g, a); d.Reason != ReasonInProgress || d.Allowed || d.RetryAfter != time.Second || d.Outcome != nil {
				t.Errorf("while it runs: %+v", d)
			}
			wantReason(t, check(t, g, other), ReasonConflict)
		}
		finish(t, g, first, &created)
		for range 2 {
			wantDone(t, g, a, created)
			wantReason(t, check(t, g, other), ReasonConflict)
		}
		other = a
		other.Cost = 2
		wantReason(t, check(t, g, other), ReasonConflict)
		for _, other := range []Attempt{
			{Actor: "bob", Resource: "orders", ID: "o1", Item: "one tv"},
			{Actor: "ann", Resource: "returns", ID: "o1", Item: "one tv"},
			{Actor: "ann", Resource: "orders", ID: "o2", Item: "one tv"},
		} {
			wantReason(t, check(t, g, other), ReasonOK)
		}
		settle(t, g, first, false) // too late
		finish(t, g, first, &Outcome{Status: 500})
		wantDone(t, g, a, created)
	})
}

func TestIdempotencyFailuresBeginAnew(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Idempotency("i", IdempotencyOptions{})
		a := Attempt{Actor: "ann", ID: "o1", Item: "one tv"}
		d := check(t, g, a)
		settle(t, g, d, false)
		a.Item = "two tvs" // nothing is known of the failed attempt
		again := check(t, g, a)
		wantReason(t, again, ReasonOK)
		settle(t, g, d, false) // once more: not another's
		wantReason(t, check(t, g, a), ReasonInProgress)
		finish(t, g, again, nil)
		wantDone(t, g, a, Outcome{})

		if err := g.Reset(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		wantReason(t, check(t, g, a), ReasonOK)
	})
}

// TestIdempotencyLongBodies: half an answer would be a wrong one.
func TestIdempotencyLongBodies(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Idempotency("i", IdempotencyOptions{MaxBody: 4})
		for body, want := range map[string]string{"": "", "\n": "\n", "four": "four", "five!": ""} {
			a := Attempt{Actor: "ann", ID: "of " + body}
			finish(t, g, check(t, g, a), &Outcome{Status: 200, Body: []byte(body)})
			wantDone(t, g, a, Outcome{Status: 200, Body: []byte(want)})
		}
	})
}

// TestIdempotencyLease: an operation whose process has died begins anew when the lease is over, and a process that was but
// paused does not overwrite what has been done meanwhile.
func TestIdempotencyLease(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		brief := newEngine(b).Idempotency("i", IdempotencyOptions{Lease: 20 * time.Millisecond})
		long := newEngine(b).Idempotency("i", IdempotencyOptions{Lease: time.Hour}) // another process
		a := Attempt{Actor: "ann", ID: "o1"}
		paused := check(t, brief, a)
		wantReason(t, paused, ReasonOK)
		var second Decision
		redistest.Eventually(t, 10*time.Second, func() bool {
			second = check(t, long, a)
			return second.Allowed
		}, "the lease is over")
		for range 2 { // while the second runs, and when it has ended
			if err := brief.Settle(t.Context(), paused, true); !errors.Is(err, ErrGone) {
				t.Errorf("Settle of the first: %v, want ErrGone", err)
			}
			settle(t, brief, paused, false)
			finish(t, long, second, &created)
			wantDone(t, long, a, Outcome{Status: 201, Header: created.Header})
		}

		// Where nobody has asked meanwhile, the outcome is kept.
		a.ID = "o2"
		late := check(t, brief, a)
		redistest.Eventually(t, 10*time.Second, func() bool {
			return b.Client.Exists(t.Context(), brief.operationKeys(a)...).Val() == 0
		}, "the lease is over")
		finish(t, brief, late, &Outcome{Status: 202})
		wantDone(t, brief, a, Outcome{Status: 202})
	})
}

func TestIdempotencyKeysExpire(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Idempotency("i", IdempotencyOptions{Lease: time.Hour, Keep: 2 * time.Hour})
		a := Attempt{Actor: "ann", ID: "o1"}
		ttl := func(most time.Duration) {
			t.Helper()
			if ttl := b.Client.PTTL(t.Context(), g.operationKeys(a)[0]).Val(); ttl > most || ttl < most-time.Minute {
				t.Errorf("the key expires in %v, want %v", ttl, most)
			}
		}
		d := check(t, g, a)
		ttl(time.Hour)
		finish(t, g, d, nil)
		ttl(2 * time.Hour)
	})
}

// TestIdempotencyRefusalsWriteNothing: not even a longer life for the key.
func TestIdempotencyRefusalsWriteNothing(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Idempotency("i", IdempotencyOptions{})
		a := Attempt{Actor: "ann", ID: "o1", Item: "tv"}
		key := g.operationKeys(a)[0]
		contents := func() string {
			return b.Client.Get(t.Context(), key).Val() + b.Client.PExpireTime(t.Context(), key).Val().String()
		}
		d := check(t, g, a)
		for range 2 {
			before := contents()
			for _, item := range []string{"tv", "radio"} {
				if d := check(t, g, Attempt{Actor: "ann", ID: "o1", Item: item}); d.Allowed {
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

// TestIdempotencyLostReply: go-redis sends the call again, and neither runs the operation twice nor locks the client out.
func TestIdempotencyLostReply(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		g := newEngine(b).Idempotency("i", IdempotencyOptions{})
		if err := g.Engine().Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		a := Attempt{Actor: "ann", ID: "o1"}
		faults.SwallowReply("evalsha")
		d := check(t, g, a)
		wantReason(t, d, ReasonOK)
		faults.SwallowReply("evalsha")
		wantReason(t, check(t, g, a), ReasonInProgress)
		faults.SwallowReply("evalsha")
		settle(t, g, d, false)
		faults.SwallowReply("evalsha")
		again := check(t, g, a)
		wantReason(t, again, ReasonOK)
		faults.SwallowReply("evalsha")
		finish(t, g, again, &Outcome{Status: 204})
		faults.SwallowReply("evalsha")
		wantDone(t, g, a, Outcome{Status: 204})
		if n := faults.Swallowed(); n != 6 {
			t.Errorf("%d replies were swallowed", n)
		}
	})
}

// TestIdempotencyGivenUp: a client whose check was given up is not locked out for the lease.
func TestIdempotencyGivenUp(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		witness := newEngine(b).Idempotency("i", IdempotencyOptions{})
		b.Client = b.NewClientWith(t, faults)
		g := newEngine(b).Idempotency("i", IdempotencyOptions{})
		if err := g.Engine().Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		check(t, g, Attempt{Actor: "bob", ID: "o1"}) // there is a connection
		faults.Hang(true)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		a := Attempt{Actor: "ann", ID: "o1"}
		go func() {
			_, err := g.Check(ctx, a)
			done <- err
		}()
		redistest.Eventually(t, 10*time.Second, func() bool { return existsBy(t, witness, a) }, "the operation to begin")
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Check: %v", err)
		}
		faults.Hang(false)
		redistest.Eventually(t, 20*time.Second, func() bool { return !existsBy(t, witness, a) }, "the operation to be given up")
		wantReason(t, check(t, witness, a), ReasonOK)
	})
}

// TestIdempotencyReleaseThatOvertakes: a call that comes after it was given up begins nothing.
func TestIdempotencyReleaseThatOvertakes(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Idempotency("i", IdempotencyOptions{})
		a, err := Attempt{Actor: "ann", ID: "o1"}.prepareOperation()
		if err != nil {
			t.Fatal(err)
		}
		if err := g.release(t.Context(), a, TombstoneTTL); err != nil {
			t.Fatal(err)
		}
		wantReason(t, check(t, g, a), ReasonGone)
		if ttl := b.Client.PTTL(t.Context(), g.operationKeys(a)[0]).Val(); ttl <= 0 || ttl > TombstoneTTL {
			t.Errorf("what is void is remembered for %v", ttl)
		}
		a = a.WithoutCall()
		d := check(t, g, a) // another try
		wantReason(t, d, ReasonOK)
		finish(t, g, d, nil)
		wantDone(t, g, a, Outcome{})
	})
}

// TestIdempotencyFullRedis: nothing begins, and what runs can end.
func TestIdempotencyFullRedis(t *testing.T) {
	s := redistest.StartServer(t, "--maxmemory-policy", "noeviction")
	rdb := s.Client(t)
	g := newEngine(redistest.Backend{Client: rdb, Prefix: "full"}).Idempotency("i", IdempotencyOptions{MaxBody: 100})
	ends, fails := check(t, g, Attempt{Actor: "ann", ID: "ends"}), check(t, g, Attempt{Actor: "ann", ID: "fails"})
	rdb.ConfigSet(t.Context(), "maxmemory", "1")
	if _, err := g.Check(t.Context(), Attempt{Actor: "ann", ID: "new"}); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("a full Redis: %v, want its OOM error", err)
	}
	finish(t, g, ends, &created)
	settle(t, g, fails, false)
	wantDone(t, g, Attempt{Actor: "ann", ID: "ends"}, created)
	rdb.ConfigSet(t.Context(), "maxmemory", "0")
	for _, id := range []string{"fails", "new"} {
		wantReason(t, check(t, g, Attempt{Actor: "ann", ID: id}), ReasonOK)
	}
}

func TestIdempotencyRace(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		const tries = 100
		guards := [2]*Idempotency{}
		for i := range guards { // processes
			b.Client = b.NewClient(t)
			guards[i] = newEngine(b).Idempotency("i", IdempotencyOptions{Lease: time.Hour})
		}
		reasons := make([]Reason, tries)
		var all sync.WaitGroup
		for i := range tries {
			all.Go(func() {
				d, err := guards[i%2].Check(t.Context(), Attempt{Actor: "ann", ID: "o1"})
				if reasons[i] = d.Reason; err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		count := map[Reason]int{}
		for _, reason := range reasons {
			count[reason]++
		}
		if count[ReasonOK] != 1 || count[ReasonInProgress] != tries-1 {
			t.Errorf("%v: want one to begin", count)
		}
	})
}

func TestIdempotencyHostileText(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Idempotency("i", IdempotencyOptions{MaxBody: outcomeBodyMost})
		for _, text := range hostile {
			for i, a := range []Attempt{
				{Actor: text, Resource: "r", ID: "o", Item: "i"},
				{Actor: "a", Resource: text, ID: "o", Item: "i"},
				{Actor: "a", Resource: "r", ID: text, Item: "i"},
				{Actor: "a", Resource: "r", ID: "item of " + text, Item: text},
			} {
				d := check(t, g, a)
				wantReason(t, d, ReasonOK) // so it is no other's
				o := Outcome{Status: 200 + i, Header: map[string]string{"Location": "/é\r\n\""}, Body: []byte(text)}
				finish(t, g, d, &o)
				wantDone(t, g, a, o)
			}
		}
	})
}

func TestIdempotencyInvalid(t *testing.T) {
	b := redistest.Mini(t)
	g := newEngine(b).Idempotency("i", IdempotencyOptions{})
	for _, a := range []Attempt{{Actor: "ann"}, {ID: "o1"}, {Actor: "ann", ID: "o1", Cost: -1}} {
		if _, err := g.Check(t.Context(), a); !isInvalid(err) {
			t.Errorf("%+v: %v", a, err)
		}
		if err := g.Reset(t.Context(), Attempt{Actor: a.Actor, ID: a.ID, Cost: a.Cost}); !isInvalid(err) {
			t.Errorf("Reset %+v: %v", a, err)
		}
	}
	for _, ok := range []bool{true, false} {
		if err := g.Settle(t.Context(), Decision{Guard: "i", Attempt: Attempt{Actor: "ann", ID: "o1"}, Allowed: true}, ok); !isInvalid(err) {
			t.Errorf("a decision of nobody's: %v", err)
		}
		if err := g.Settle(t.Context(), Decision{Guard: "i"}, ok); err != nil {
			t.Errorf("a refusal: %v", err)
		}
	}
	d := check(t, g, Attempt{Actor: "ann", ID: "o1"})
	if err := b.Client.Set(t.Context(), g.operationKeys(d.Attempt)[0], "done c "+fingerprint(d.Attempt)+" rubbish", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	if d, err := g.Check(t.Context(), Attempt{Actor: "ann", ID: "o1"}); err == nil || d.Allowed {
		t.Errorf("an outcome that can not be read: %+v, %v", d, err)
	}
}

func TestIdempotencySetUpMistakes(t *testing.T) {
	for text, options := range map[string]IdempotencyOptions{
		"a Lease of -1s":         {Lease: -time.Second},
		"a Lease of 25h0m0s":     {Lease: 25 * time.Hour},
		"a Lease of 1.5ms":       {Lease: 1500 * time.Microsecond},
		"a Keep of 1ms":          {Keep: time.Millisecond},
		"a Keep of 8784h0m1s":    {Keep: MaxTTL + time.Second},
		"give 0 to 1048576":      {MaxBody: -1},
		"a MaxBody of 1048577":   {MaxBody: 1<<20 + 1},
		`bytes (guard "orders")`: {MaxBody: -1},
	} {
		wantPanic(t, text, func() { New(nothing{}).Idempotency("orders", options) })
	}
	wantPanic(t, "Idempotency", func() { NewMemory().Idempotency("orders", IdempotencyOptions{}) })
}

// TestIdempotencyIsObserved: everything that it does.
func TestIdempotencyIsObserved(t *testing.T) {
	var h heard
	g := newEngine(redistest.Mini(t), WithObserver(&h)).Idempotency("i", IdempotencyOptions{})
	a := Attempt{Actor: "ann", ID: "o1"}
	settle(t, g, check(t, g, a), false)
	finish(t, g, check(t, g, a), &created)
	wantDone(t, g, a, Outcome{Status: 201, Header: created.Header})
	if err := g.Reset(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	_ = g.Reset(t.Context(), Attempt{Actor: "ann"}) // an error, which is heard too
	var got []string
	for _, e := range h.events {
		got = append(got, fmt.Sprint(e.Op, " ", e.Decision.Reason, " ", e.Err != nil))
	}
	want := "check ok false, settle  false, check ok false, settle ok false, check done false, reset  false, reset  true"
	if got := strings.Join(got, ", "); got != want {
		t.Errorf("heard %s\nwant  %s", got, want)
	}
}

// TestIdempotencyAgainstModel lets several processes begin, end, fail and lose the lease at random, and compares with a model.
func TestIdempotencyAgainstModel(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Idempotency("i", IdempotencyOptions{Lease: time.Hour, MaxBody: 100})
		runs := 0
		rapid.Check(t, func(rt *rapid.T) {
			runs++
			type run struct {
				decision Decision
				body     string
			}
			var (
				begun  []run // all that ever did, each with what it will say
				holder = -1  // which of them runs, as Redis knows it
				item   string
				done   *run
			)
			id := fmt.Sprint("run ", runs)
			rt.Repeat(map[string]func(*rapid.T){
				"check": func(rt *rapid.T) {
					a := Attempt{Actor: "ann", ID: id, Item: rapid.SampledFrom([]string{"tv", "radio"}).Draw(rt, "item")}
					d := check(t, g, a)
					want := ReasonOK
					switch {
					case holder < 0 && done == nil:
						begun = append(begun, run{d, fmt.Sprint("said by ", len(begun))})
						holder, item = len(begun)-1, a.Item
					case a.Item != item:
						want = ReasonConflict
					case done != nil:
						want = ReasonDone
					default:
						want = ReasonInProgress
					}
					if d.Reason != want || want == ReasonDone && string(d.Outcome.Body) != done.body {
						rt.Fatalf("%+v (%+v), want %s (%+v)", d, d.Outcome, want, done)
					}
				},
				"end": func(rt *rapid.T) {
					if len(begun) == 0 {
						rt.Skip("nothing runs")
					}
					i := rapid.IntRange(0, len(begun)-1).Draw(rt, "which")
					d, ok := begun[i].decision, rapid.Bool().Draw(rt, "ok")
					d.Outcome = &Outcome{Body: []byte(begun[i].body)}
					err := g.Settle(t.Context(), d, ok)
					lost := ok && (holder >= 0 && holder != i || holder < 0 && done != nil && done.body != begun[i].body)
					if errors.Is(err, ErrGone) != lost || err != nil && !lost {
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
					if err := b.Client.Del(t.Context(), g.operationKeys(begun[holder].decision.Attempt)...).Err(); err != nil {
						rt.Fatal(err)
					}
					holder = -1
				},
			})
		})
	})
}

// FuzzOutcome: what is kept is read again as it was, and nothing that may stand in Redis breaks the reader.
func FuzzOutcome(f *testing.F) {
	f.Add(201, "Location", "/orders/7", []byte("{}\n"), "{}\n")
	f.Add(0, "", "", []byte(nil), "{\"status\":\"x\"}\n")
	f.Fuzz(func(t *testing.T, status int, name, value string, body []byte, stored string) {
		o := &Outcome{Status: status, Header: map[string]string{strings.ToValidUTF8(name, ""): strings.ToValidUTF8(value, "")}, Body: body}
		text, err := o.text(len(body))
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseOutcome(text)
		if err != nil || got.Status != o.Status || !maps.Equal(got.Header, o.Header) || !bytes.Equal(got.Body, o.Body) {
			t.Errorf("%+v became %+v, %v", o, got, err)
		}
		_, _ = parseOutcome(stored)
	})
}

// existsBy reports whether Redis knows of the operation, by a guard whose client nobody hurts.
func existsBy(t *testing.T, g *Idempotency, a Attempt) bool {
	t.Helper()
	value, err := g.Engine().Run(t.Context(), existsScript, g.operationKeys(a))
	if err != nil {
		t.Fatal(err)
	}
	return value == int64(1)
}

var existsScript = NewScript("exists", "return redis.call('EXISTS', KEYS[1])", Replayable)
