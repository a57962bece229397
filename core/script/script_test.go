package script_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/redpacket"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/timed"
)

func TestRun(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		e := guardtest.NewEngine(b)
		s := script.New("own", `redis.call('SET', KEYS[1], ARGV[1], 'PX', 60000) return {redis.call('GET', KEYS[1]), KEYS[2], 7}`, script.AtMostOnce)
		a, z := e.Key("own", "ann", "a"), e.Key("own", "ann", "z")
		for _, argument := range []string{"x", "\x00\xff"} {
			reply, err := e.Run(t.Context(), s, []string{a, z}, argument)
			values, _ := reply.([]any)
			if err != nil || len(values) != 3 || values[0] != argument || values[1] != z || values[2] != int64(7) {
				t.Fatalf("%v, %v", reply, err)
			}
		}
		if reply, err := e.Run(t.Context(), script.New("nil", "return nil", script.Idempotent),
			nil); reply != nil || err != nil {
			t.Errorf("nil: %v, %v", reply, err)
		}
		if _, err := e.Run(t.Context(), s, []string{a, e.Key("own", "bob")}); !errors.Is(err, script.ErrSlots) {
			t.Errorf("two tags: %v", err)
		}
		if _, err := e.Run(t.Context(), script.New("wrong", "return {", script.AtMostOnce), nil); err == nil ||
			!strings.Contains(err.Error(), "script wrong") {
			t.Errorf("a script with a mistake: %v", err)
		}
	})
}

// TestLostReply drops the reply of each changing call once. The state of the guards must change once, because
// of the operation IDs. INCR, which has none, counts twice: this shows that the test can fail.
//
// Promise: A lost reply changes the state once, although the client library sends the call again.
func TestLostReply(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		e := guardtest.NewEngine(b)
		lose := func(what string, f func()) {
			t.Helper()
			before := faults.Swallowed()
			faults.SwallowReply("evalsha")
			f()
			if faults.Swallowed() != before+1 {
				t.Fatalf("%s: no reply was swallowed", what)
			}
		}

		counter := e.Key("own", "n")
		s := script.New("incr", `redis.call('PEXPIRE', KEYS[1], 60000) return redis.call('INCR', KEYS[1])`,
			script.Idempotent)
		if _, err := e.Run(t.Context(), s, []string{counter}); err != nil {
			t.Fatal(err)
		}
		lose("INCR", func() {
			if n, err := e.Run(t.Context(), s, []string{counter}); n != int64(3) || err != nil {
				t.Errorf("without an operation ID: %v, %v; want 3, one too many", n, err)
			}
		})
		b.Client.Del(t.Context(), counter)

		// The server must know each script before its EVALSHA can run.
		if err := e.Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		ballots, sale, window := votes.New(e, "v", votes.Options{}), seckill.New(e, "s", seckill.Options{}),
			limit.NewSlidingWindow(e, "w", limit.PerHour(5))
		if err := e.Preload(t.Context()); err != nil {
			t.Fatal(err)
		}

		var vote core.Decision
		lose("vote", func() { vote = guardtest.Check(t, ballots, core.Attempt{Actor: "ann", Resource: "p"}) })
		guardtest.WantReason(t, vote, core.ReasonOK)
		wantTally(t, ballots, "p", map[string]int64{"": 1})
		lose("taking back", func() { guardtest.Settle(t, ballots, vote, core.Rollback) })
		wantTally(t, ballots, "p", map[string]int64{})

		lose("open", func() {
			if _, err := sale.Open(t.Context(), "tv", seckill.Sale{Stock: 10}); err != nil {
				t.Error(err)
			}
		})
		var ann, bob core.Decision
		lose("reserve", func() { ann = guardtest.Check(t, sale, core.Attempt{Actor: "ann", Resource: "tv"}) })
		guardtest.WantReason(t, ann, core.ReasonOK)
		wantStatus(t, sale, "tv", 9, 1, 0)
		lose("confirm", func() { guardtest.Settle(t, sale, ann, core.Commit) })
		wantStatus(t, sale, "tv", 9, 0, 1)
		bob = guardtest.Check(t, sale, core.Attempt{Actor: "bob", Resource: "tv"})
		lose("cancel", func() { guardtest.Settle(t, sale, bob, core.Rollback) })
		wantStatus(t, sale, "tv", 9, 0, 1)

		// A check of a limit is sent only once: the caller gets an error, and at most one unit is lost.
		guardtest.Check(t, window, core.Attempt{Actor: "bob"}) // the process has asked for former windows
		lose("window", func() {
			if _, err := window.Check(t.Context(), core.Attempt{Actor: "ann"}); err == nil {
				t.Error("the lost reply of a limit was not reported: was the check sent again?")
			}
		})
		d := guardtest.Check(t, window, core.Attempt{Actor: "ann"})
		if d.Remaining != 3 {
			t.Errorf("%+v: want 3 remaining", d)
		}
		lose("refund", func() { guardtest.Settle(t, window, d, core.Rollback) })
		if d := guardtest.Check(t, window, core.Attempt{Actor: "ann"}); d.Remaining != 3 {
			t.Errorf("%+v: want 3 remaining after one unit came back", d)
		}
	})
}

// TestFailedRequestAfterALostReply makes a first attempt whose reply is lost, so that go-redis resends it and
// gets a replay. When the request then fails, its vote must be taken back all the same.
func TestFailedRequestAfterALostReply(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		e := guardtest.NewEngine(b)
		ballots, sale := votes.New(e, "v", votes.Options{}), seckill.New(e, "s", seckill.Options{})
		openSale(t, sale, "p", seckill.Sale{Stock: 5})
		if err := e.Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, g := range []core.Guard{ballots, sale} {
			faults.SwallowReply("evalsha")
			d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p"})
			guardtest.WantReason(t, d, core.ReasonOK)
			guardtest.Settle(t, g, d, core.Rollback)
		}
		wantTally(t, ballots, "p", map[string]int64{})
		wantStatus(t, sale, "p", 5, 0, 0)
	})
}

// TestAskAgain repeats a failed call at once with the attempt beside the error, until it succeeds. The last
// answer must stand, although the earlier tries are undone in the background.
//
// Promise: Asking again after an error is safe, with the same ID or without.
func TestAskAgain(t *testing.T) {
	t.Parallel()
	b := redistest.Single(t)
	faults := redistest.NewFaults(t)
	plain := guardtest.NewEngine(b)
	b.Client = b.NewClientWith(t, faults)
	slow := guardtest.NewEngine(b, core.WithDeadline(100*time.Millisecond))
	ballots, seen := votes.New(slow, "v", votes.Options{}), votes.New(plain, "v", votes.Options{})
	guardtest.Check(t, seen, core.Attempt{Actor: "first", Resource: "p"})
	for i := range int64(5) {
		faults.Hang(true)
		d, err := ballots.Check(t.Context(), core.Attempt{Actor: strconv.FormatInt(i, 10), Resource: "p"})
		if err == nil {
			t.Fatal("want a deadline that is over")
		}
		faults.Hang(false)
		redistest.Eventually(t, time.Minute, func() bool {
			d, err = ballots.Check(t.Context(), d.Attempt)
			return err == nil
		}, "the vote is decided")
		guardtest.WantReason(t, d, core.ReasonOK)
		redistest.Eventually(t, time.Minute,
			func() bool { return ballots.Settle(t.Context(), d, core.Commit) == nil }, "the vote is settled")
	}
	redistest.Eventually(t, time.Minute, func() bool { return slow.Pending() == 0 }, "the undos have ended")
	wantTally(t, seen, "p", map[string]int64{"": 6})
}

// Promise (Outages): A check ends within its deadline, whatever the client's timeouts.
func TestDeadline(t *testing.T) {
	for _, obeys := range []bool{false, true} {
		t.Run(fmt.Sprintf("obeys=%t", obeys), func(t *testing.T) {
			t.Parallel()
			timed.Test(t, time.Second, func(t *timed.T) { deadline(t, obeys) })
		})
	}
}

func deadline(t testing.TB, obeys bool) {
	s := redistest.StartServer(t)
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: obeys,
		ReadTimeout: 5 * time.Second})
	closing(t, rdb)
	e := core.New(rdb, core.WithDeadline(50*time.Millisecond), core.WithObserver(guardtest.Ignore{}))
	window, sale := limit.NewSlidingWindow(e, "w", limit.PerHour(5)), seckill.New(e, "s", seckill.Options{})
	s.Pause()
	for _, g := range []core.Guard{window, sale} {
		begun := time.Now()
		_, err := g.Check(t.Context(), core.Attempt{Actor: "ann", Resource: "tv"})
		if err == nil || guardtest.IsInvalid(err) {
			t.Errorf("a server that hangs: %v", err)
		}
		if took := time.Since(begun); took > 2*time.Second { // far less than the client's own timeout
			t.Errorf("the check took %v", took)
		}
	}
	s.Resume()
	redistest.Eventually(t, time.Minute, func() bool {
		_, err := window.Check(t.Context(), core.Attempt{Actor: "bob"})
		return err == nil
	}, "the guard decides again")
}

func TestCallerGivesUp(t *testing.T) {
	b := redistest.Mini(t)
	g := limit.NewSlidingWindow(guardtest.NewEngine(b), "w", limit.PerHour(5))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.Check(ctx, core.Attempt{Actor: "ann"}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want context.Canceled", err)
	}
}

func TestRedisThatIsDown(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	defer rdb.Close()
	wantOutage(t, rdb, "")
}

func TestRedisThatIsLoading(t *testing.T) {
	wantOutage(t, guardtest.RefusingServer(t, "-LOADING Redis is loading the dataset in memory\r\n"), "LOADING")
}

func TestRedisThatIsReadOnly(t *testing.T) {
	t.Parallel()
	primary, replica := redistest.StartServer(t), redistest.StartServer(t)
	replica.ReplicaOf(primary)
	on := func(rdb script.Client) (*core.Engine, *seckill.Guard) {
		e := core.New(rdb, core.WithObserver(guardtest.Ignore{}), core.WithDeadline(time.Minute),
			core.WithoutBreaker())
		return e, seckill.New(e, "s", seckill.Options{})
	}
	_, sale := on(primary.Client(t))
	openSale(t, sale, "tv", seckill.Sale{Stock: 5})
	once := replica.Options().Simple()
	once.MaxRetries, once.ReadTimeout = -1, time.Minute
	e, sale := on(closing(t, redis.NewClient(once)))
	redistest.Eventually(t, time.Minute, func() bool {
		_, err := sale.Status(t.Context(), "tv")
		return err == nil
	}, "the replica has the sale")
	for _, g := range []core.Guard{
		limit.NewSlidingWindow(e, "w", limit.PerHour(5)), limit.NewFixedWindow(e, "f", limit.PerHour(5)),
		limit.NewTokenBucket(e, "b", limit.PerHour(5)), votes.New(e, "v", votes.Options{}), sale,
	} {
		d, err := g.Check(t.Context(), core.Attempt{Actor: "ann", Resource: "tv"})
		if d.Allowed || err == nil || !strings.Contains(err.Error(), "READONLY") {
			t.Errorf("%s: %+v, %v", g.Name(), d, err)
		}
	}
	wantStatus(t, sale, "tv", 5, 0, 0)
}

func TestRedisThatSendsGarbage(t *testing.T) {
	wantOutage(t, guardtest.RefusingServer(t, ":42\r\n"), "unexpected reply")
	wantOutage(t, guardtest.RefusingServer(t, "*1\r\n$2\r\nok\r\n"), "unexpected reply")
	wantOutage(t, guardtest.RefusingServer(t, "*6\r\n$2\r\nok\r\n*0\r\n*0\r\n*0\r\n*0\r\n*0\r\n"),
		"unexpected reply")
	wantOutage(t, guardtest.RefusingServer(t, "$-1\r\n"), "unexpected reply")
	wantOutage(t, guardtest.RefusingServer(t, "garbage\r\n"), "")
}

// wantOutage fails the test unless every guard returns an error and allows no attempt.
func wantOutage(t *testing.T, rdb script.Client, text string) {
	t.Helper()
	e := core.New(rdb, core.WithObserver(guardtest.Ignore{}), core.WithDeadline(time.Minute),
		core.WithoutBreaker())
	for _, g := range []core.Guard{
		limit.NewSlidingWindow(e, "w", limit.PerHour(5)), limit.NewFixedWindow(e, "f", limit.PerHour(5)),
		limit.NewTokenBucket(e, "b", limit.PerHour(5)),
		votes.New(e, "v", votes.Options{}), seckill.New(e, "s", seckill.Options{}),
		redpacket.New(e, "r", redpacket.Options{}),
	} {
		d, err := g.Check(t.Context(), core.Attempt{Actor: "ann", Resource: "tv"})
		if err == nil || d.Allowed || guardtest.IsInvalid(err) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %+v, %v, want an error with %q", g.Name(), d, err, text)
		}
		if d.Guard != g.Name() || d.Attempt.ID == "" {
			t.Errorf("%+v: the decision beside an error has the attempt", d)
		}
	}
}

// TestRestart kills a Redis that persists and one that does not.
//
// Promise: A server that dies and comes back with its data has changed each claim once.
func TestRestart(t *testing.T) {
	t.Parallel()
	for name, persistent := range map[string]bool{"persistent": true, "in memory": false} {
		t.Run(name, func(t *testing.T) {
			config := []string{"--appendonly", "no"}
			if persistent {
				config = []string{"--appendonly", "yes", "--appendfsync", "always"}
			}
			t.Parallel()
			s := redistest.StartServer(t, config...)
			options := s.Options().Simple()
			options.DialerRetries, options.ReadTimeout = 1, time.Minute
			e := core.New(closing(t, redis.NewClient(options)), core.WithDeadline(time.Minute),
				core.WithObserver(guardtest.Ignore{}))
			window, votes, sale := limit.NewSlidingWindow(e, "w", limit.PerHour(2)),
				votes.New(e, "v", votes.Options{}), seckill.New(e, "s", seckill.Options{})
			openSale(t, sale, "tv", seckill.Sale{Stock: 5})
			guardtest.Check(t, window, core.Attempt{Actor: "ann"})
			guardtest.Check(t, votes, core.Attempt{Actor: "ann", Resource: "p"})
			held := guardtest.Check(t, sale, core.Attempt{Actor: "ann", Resource: "tv"})

			s.Kill()
			if _, err := votes.Check(t.Context(), core.Attempt{Actor: "bob", Resource: "p"}); err == nil {
				t.Error("a vote was decided without Redis")
			}
			s.Start()

			// A limit's check is sent only once, so the first one after a restart may use a dead connection.
			var d core.Decision
			redistest.Eventually(t, time.Minute, func() (ok bool) {
				var err error
				d, err = window.Check(t.Context(), core.Attempt{Actor: "ann"})
				return err == nil
			}, "the window decides again")
			vote := guardtest.Check(t, votes, core.Attempt{Actor: "ann", Resource: "p"})
			buy := guardtest.Check(t, sale, core.Attempt{Actor: "bob", Resource: "tv"})
			if persistent {
				guardtest.WantReason(t, d, core.ReasonOK)
				if d.Remaining != 0 {
					t.Errorf("%+v: the log was lost", d)
				}
				guardtest.WantReason(t, vote, core.ReasonDuplicate)
				guardtest.WantReason(t, buy, core.ReasonOK)
				guardtest.Settle(t, sale, held, core.Commit)
				wantStatus(t, sale, "tv", 3, 1, 1)
			} else {
				guardtest.WantReason(t, d, core.ReasonOK)
				guardtest.WantReason(t, vote, core.ReasonOK)
				guardtest.WantReason(t, buy, core.ReasonNotReady) // a lost sale has no stock
			}
		})
	}
}

// TestReshard moves a slot to another primary while guards use it. A rate limit has one key and continues
// throughout. Votes and sales have several keys, some of them new. A cluster rejects such calls until the
// slot has moved, so they may fail, but nothing may be lost or counted twice.
//
// Promise (Outages): Moving slots delay checks and lose nothing.
func TestReshard(t *testing.T) {
	redistest.LeftToCI(t)
	t.Parallel()
	c := calmCluster(t)
	e := core.New(patientClient(t, c), core.WithDeadline(time.Minute), core.WithObserver(guardtest.Ignore{}))
	window, ballots, sale := limit.NewSlidingWindow(e, "w", limit.PerHour(1000)),
		votes.New(e, "v", votes.Options{}), seckill.New(e, "s", seckill.Options{})
	redistest.Eventually(t, time.Minute, func() bool {
		_, err := sale.Open(t.Context(), "p", seckill.Sale{Stock: 100_000, PerBuyer: 100_000})
		return err == nil
	}, "the sale is open")

	slot := redistest.Slot("{p}")
	from, to := c.MasterOfSlot(slot), c.MasterOfSlot((slot+5461)%16384)
	if from == to {
		t.Fatal("both slots have one master")
	}

	// Two workers run until the end. A failed vote or purchase is retried under its ID.
	var voted, bought atomic.Int64
	stop := make(chan struct{})
	var all sync.WaitGroup
	work := func(count *atomic.Int64, once func(n int64) error) {
		all.Go(func() {
			for n := int64(0); ; {
				select {
				case <-stop:
					return
				default:
				}
				if once(n) == nil {
					n++
					count.Store(n)
				}
			}
		})
	}
	try := func(g core.Guard, a core.Attempt) error {
		d, err := g.Check(t.Context(), a)
		if err == nil && !d.Allowed {
			t.Errorf("%s: %+v", g.Name(), d)
		}
		return err
	}
	work(&voted, func(n int64) error {
		id := strconv.FormatInt(n, 10)
		return try(ballots, core.Attempt{Actor: id, Resource: "p", ID: id})
	})
	work(&bought, func(n int64) error {
		id := strconv.FormatInt(n, 10)
		a := core.Attempt{Actor: "ann", Resource: "p", ID: id}
		if err := try(sale, a); err != nil {
			return err
		}
		d, err := sale.Confirm(t.Context(), a)
		if err == nil && !d.Allowed {
			t.Errorf("confirm: %+v", d)
		}
		return err
	})
	progress := func(what string, counts ...*atomic.Int64) {
		t.Helper()
		for _, count := range counts {
			begun := count.Load()
			redistest.Eventually(t, time.Minute, func() bool { return count.Load() >= begun+5 }, what)
		}
	}

	limit := func(remaining int64) {
		t.Helper()
		for range 5 {
			remaining--
			if d := guardtest.Check(t, window, core.Attempt{Actor: "p"}); d.Remaining != remaining {
				t.Errorf("%+v, want %d remaining", d, remaining)
			}
		}
	}
	limit(1000)
	progress("all guards decide", &voted, &bought)
	m := c.BeginMigration(t, slot, from, to)
	m.MoveKeys(2)
	limit(995) // half-way
	for m.MoveKeys(100) > 0 {
	}
	limit(990) // at the new master, which does not own the slot yet
	m.Finish()
	progress("all guards decide at the new master", &voted, &bought)
	limit(985)
	close(stop)
	all.Wait()

	wantTally(t, ballots, "p", map[string]int64{"": voted.Load()})
	if _, err := sale.Sweep(t.Context(), "p"); err != nil {
		t.Error(err)
	}
	wantStatus(t, sale, "p", 100_000-bought.Load(), 0, bought.Load())
}

// TestFailover kills the master of all keys. Its replica takes over, without the scripts.
func TestFailover(t *testing.T) {
	redistest.LeftToCI(t)
	t.Parallel()
	c := calmCluster(t)
	rdb := patientClient(t, c)
	on := func(deadline time.Duration) (*limit.SlidingWindow, *votes.Guard, *seckill.Guard) {
		e := core.New(rdb, core.WithDeadline(deadline), core.WithObserver(guardtest.Ignore{}))
		return limit.NewSlidingWindow(e, "w", limit.PerHour(1000)), votes.New(e, "v", votes.Options{}),
			seckill.New(e, "s", seckill.Options{})
	}
	_, polls, calm := on(time.Minute)
	openSale(t, calm, "p", seckill.Sale{Stock: 10})
	ann := guardtest.Check(t, calm, core.Attempt{Actor: "ann", Resource: "p"})
	guardtest.Check(t, polls, core.Attempt{Actor: "ann", Resource: "p"})
	slot := redistest.Slot("{p}")
	old, replica := c.MasterOfSlot(slot), c.ReplicaOfSlot(slot)
	waitForReplica(t, old.Client(t))
	window, votes, sale := on(3 * time.Second)
	old.Kill()
	if _, err := sale.Check(t.Context(), core.Attempt{Actor: "bob", Resource: "p"}); err == nil {
		t.Error("a sale was decided without a master")
	}
	c.Replace(slot, old, replica)
	redistest.Eventually(t, time.Minute, func() bool {
		_, err := window.Check(t.Context(), core.Attempt{Actor: "p"})
		return err == nil
	}, "the guards decide again")
	var again core.Decision
	redistest.Eventually(t, time.Minute, func() (ok bool) {
		var err error
		again, err = votes.Check(t.Context(), core.Attempt{Actor: "ann", Resource: "p"})
		return err == nil
	}, "votes are decided again")
	guardtest.WantReason(t, again, core.ReasonDuplicate)
	redistest.Eventually(t, time.Minute,
		func() bool { return sale.Settle(t.Context(), ann, core.Commit) == nil }, "the hold is confirmed")
	wantStatus(t, calm, "p", 9, 0, 1)
}

// TestLateReplyLeavesNoClaim uses a Redis that is slower than the deadline: the caller gets an error although
// the claim is made. The caller may never repeat the call, so the guard must undo the claim itself. A caller
// that repeats the call with the same operation ID must get the claim.
//
// Promise: A claim whose answer came too late is undone.
func TestLateReplyLeavesNoClaim(t *testing.T) {
	t.Parallel()
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		plain := guardtest.NewEngine(b)
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		slow := guardtest.NewEngine(b, core.WithDeadline(150*time.Millisecond))
		ballots, sale := votes.New(slow, "v", votes.Options{}), seckill.New(slow, "s", seckill.Options{})
		seenVotes, seenSale := votes.New(plain, "v", votes.Options{}), seckill.New(plain, "s", seckill.Options{})
		openSale(t, seenSale, "p", seckill.Sale{Stock: 5})
		for _, g := range []core.Guard{ballots, sale} { // connects and loads the scripts
			redistest.Eventually(t, time.Minute, func() bool {
				d, err := g.Check(t.Context(), core.Attempt{Actor: "first", Resource: "p"})
				return err == nil && g.Settle(t.Context(), d, core.Rollback) == nil
			}, "the guard decides")
		}

		faults.Hang(true)
		for _, id := range []string{"", "given"} {
			for _, g := range []core.Guard{ballots, sale} {
				if d, err := g.Check(t.Context(), core.Attempt{Actor: "ann " + id, Resource: "p", ID: id}); err == nil {
					t.Fatalf("%+v: want a deadline that is over", d)
				}
			}
		}
		faults.Hang(false)
		redistest.Eventually(t, time.Minute, func() bool {
			s, err := seenSale.Status(t.Context(), "p")
			return err == nil && s.Held == 0 && tally(t, seenVotes, "p")[""] == 0
		}, "the claims are undone")
		for _, g := range []core.Guard{seenVotes, seenSale} {
			guardtest.WantReason(t, guardtest.Check(t, g,
				core.Attempt{Actor: "ann given", Resource: "p", ID: "given"}), core.ReasonOK)
		}
	})
}
