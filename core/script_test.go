package core

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

func TestRun(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		e := newEngine(b)
		s := NewScript("own", `redis.call('SET', KEYS[1], ARGV[1], 'PX', 60000) return {redis.call('GET', KEYS[1]), KEYS[2], 7}`, Once)
		a, z := e.Key("own", "ann", "a"), e.Key("own", "ann", "z")
		for _, argument := range []string{"x", "\x00\xff"} {
			reply, err := e.Run(t.Context(), s, []string{a, z}, argument)
			values, _ := reply.([]any)
			if err != nil || len(values) != 3 || values[0] != argument || values[1] != z || values[2] != int64(7) {
				t.Fatalf("%v, %v", reply, err)
			}
		}
		if reply, err := e.Run(t.Context(), NewScript("nil", "return nil", Replayable), nil); reply != nil || err != nil {
			t.Errorf("nil: %v, %v", reply, err)
		}
		if _, err := e.Run(t.Context(), s, []string{a, e.Key("own", "bob")}); !errors.Is(err, errSlots) {
			t.Errorf("two tags: %v", err)
		}
		if _, err := e.Run(t.Context(), NewScript("wrong", "return {", Once), nil); err == nil || !strings.Contains(err.Error(), "script wrong") {
			t.Errorf("a script with a mistake: %v", err)
		}
	})
}

// TestLostReply swallows the reply of each changing call once. The guards' state must have changed once: that is what the
// operation IDs are for. INCR, which has none, counts twice, so the test can fail.
func TestLostReply(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		e := newEngine(b)
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
		s := NewScript("incr", `redis.call('PEXPIRE', KEYS[1], 60000) return redis.call('INCR', KEYS[1])`, Replayable)
		if _, err := e.Run(t.Context(), s, []string{counter}); err != nil {
			t.Fatal(err)
		}
		lose("INCR", func() {
			if n, err := e.Run(t.Context(), s, []string{counter}); n != int64(3) || err != nil {
				t.Errorf("without an operation ID: %v, %v; want 3, one too many", n, err)
			}
		})
		b.Client.Del(t.Context(), counter)

		// Each script has to be known to the server before its EVALSHA is one that runs.
		if err := e.Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		votes, sale, window := e.Votes("v", VoteOptions{}), e.Seckill("s", SeckillOptions{}), e.SlidingWindow("w", PerHour(5))
		if err := e.Preload(t.Context()); err != nil {
			t.Fatal(err)
		}

		var vote Decision
		lose("vote", func() { vote = check(t, votes, Attempt{Actor: "ann", Resource: "p"}) })
		wantReason(t, vote, ReasonOK)
		wantTally(t, votes, "p", map[string]int64{"": 1})
		lose("taking back", func() { settle(t, votes, vote, false) })
		wantTally(t, votes, "p", map[string]int64{})

		lose("open", func() {
			if _, err := sale.Open(t.Context(), "tv", Sale{Stock: 10}); err != nil {
				t.Error(err)
			}
		})
		var ann, bob Decision
		lose("reserve", func() { ann = check(t, sale, Attempt{Actor: "ann", Resource: "tv"}) })
		wantReason(t, ann, ReasonOK)
		wantStatus(t, sale, "tv", 9, 1, 0)
		lose("confirm", func() { settle(t, sale, ann, true) })
		wantStatus(t, sale, "tv", 9, 0, 1)
		bob = check(t, sale, Attempt{Actor: "bob", Resource: "tv"})
		lose("cancel", func() { settle(t, sale, bob, false) })
		wantStatus(t, sale, "tv", 9, 0, 1)

		// A check of a limit is sent once only: the caller hears of the loss, and no more than one unit is gone.
		lose("window", func() {
			if _, err := window.Check(t.Context(), Attempt{Actor: "ann"}); err == nil {
				t.Error("the lost reply of a limit was not reported: was the check sent again?")
			}
		})
		d := check(t, window, Attempt{Actor: "ann"})
		if d.Remaining != 3 {
			t.Errorf("%+v: want 3 remaining", d)
		}
		lose("refund", func() { settle(t, window, d, false) })
		if d := check(t, window, Attempt{Actor: "ann"}); d.Remaining != 3 {
			t.Errorf("%+v: want 3 remaining after one unit came back", d)
		}
	})
}

// TestFailedRequestAfterALostReply is a first attempt whose reply is lost and which is re-sent under the hood: it hears the
// stored answer to itself. When its request then fails, its vote has to go all the same.
func TestFailedRequestAfterALostReply(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		e := newEngine(b)
		votes, sale := e.Votes("v", VoteOptions{}), e.Seckill("s", SeckillOptions{})
		openSale(t, sale, "p", Sale{Stock: 5})
		if err := e.Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, g := range []Guard{votes, sale} {
			faults.SwallowReply("evalsha")
			d := check(t, g, Attempt{Actor: "ann", Resource: "p"})
			wantReason(t, d, ReasonOK)
			settle(t, g, d, false)
		}
		wantTally(t, votes, "p", map[string]int64{})
		wantStatus(t, sale, "p", 5, 0, 0)
	})
}

// TestAskAgain asks again at once with what came back beside the error, as often as it takes: what it is told in the end stays,
// although the tries before are taken back in the background.
func TestAskAgain(t *testing.T) {
	b := redistest.Single(t)
	faults := redistest.NewFaults(t)
	plain := newEngine(b)
	b.Client = b.NewClientWith(t, faults)
	slow := newEngine(b, WithDeadline(100*time.Millisecond))
	votes, seen := slow.Votes("v", VoteOptions{}), plain.Votes("v", VoteOptions{})
	check(t, seen, Attempt{Actor: "first", Resource: "p"})
	for i := range int64(5) {
		faults.Delay(150 * time.Millisecond)
		d, err := votes.Check(t.Context(), Attempt{Actor: strconv.FormatInt(i, 10), Resource: "p"})
		if err == nil {
			t.Fatal("want a deadline that is over")
		}
		faults.Delay(0)
		redistest.Eventually(t, 10*time.Second, func() bool {
			d, err = votes.Check(t.Context(), d.Attempt)
			return err == nil
		}, "the vote is decided")
		wantReason(t, d, ReasonOK)
		settle(t, votes, d, true)
	}
	redistest.Eventually(t, 10*time.Second, func() bool { return slow.undoing() == 0 }, "the undos have ended")
	wantTally(t, seen, "p", map[string]int64{"": 6})
}

func TestDeadline(t *testing.T) {
	s := redistest.StartServer(t)
	for _, obeys := range []bool{false, true} {
		rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: obeys, ReadTimeout: 5 * time.Second})
		defer rdb.Close()
		e := New(rdb, WithDeadline(50*time.Millisecond), WithObserver(ignore{}))
		window, sale := e.SlidingWindow("w", PerHour(5)), e.Seckill("s", SeckillOptions{})
		s.Pause()
		for _, g := range []Guard{window, sale} {
			begun := time.Now()
			_, err := g.Check(t.Context(), Attempt{Actor: "ann", Resource: "tv"})
			if err == nil || isInvalid(err) {
				t.Errorf("a server that hangs: %v", err)
			}
			if took := time.Since(begun); took > 2*time.Second { // far less than the client's own time-out
				t.Errorf("obeys=%v: the check took %v", obeys, took)
			}
		}
		s.Resume()
		redistest.Eventually(t, 10*time.Second, func() bool {
			_, err := window.Check(t.Context(), Attempt{Actor: "bob"})
			return err == nil
		}, "the guard decides again")
	}
}

func TestCallerGivesUp(t *testing.T) {
	b := redistest.Mini(t)
	g := newEngine(b).SlidingWindow("w", PerHour(5))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.Check(ctx, Attempt{Actor: "ann"}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want context.Canceled", err)
	}
}

func TestRedisThatIsDown(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	wantOutage(t, rdb, "")
}

func TestRedisThatIsLoading(t *testing.T) {
	wantOutage(t, refusingServer(t, "-LOADING Redis is loading the dataset in memory\r\n"), "LOADING")
}

func TestRedisThatIsReadOnly(t *testing.T) {
	primary, replica := redistest.StartServer(t), redistest.StartServer(t)
	replica.ReplicaOf(primary)
	on := func(rdb Client) (*Engine, *Seckill) {
		e := New(rdb, WithObserver(ignore{}), WithDeadline(10*time.Second), WithoutBreaker())
		return e, e.Seckill("s", SeckillOptions{})
	}
	_, sale := on(primary.Client(t))
	openSale(t, sale, "tv", Sale{Stock: 5})
	e, sale := on(replica.Client(t))
	redistest.Eventually(t, 10*time.Second, func() bool {
		_, err := sale.Status(t.Context(), "tv")
		return err == nil
	}, "the replica has the sale")
	for _, g := range []Guard{
		e.SlidingWindow("w", PerHour(5)), e.FixedWindow("f", PerHour(5)), e.TokenBucket("b", PerHour(5)), e.Votes("v", VoteOptions{}), sale,
	} {
		d, err := g.Check(t.Context(), Attempt{Actor: "ann", Resource: "tv"})
		if d.Allowed || err == nil || !strings.Contains(err.Error(), "READONLY") {
			t.Errorf("%s: %+v, %v", g.Name(), d, err)
		}
	}
	wantStatus(t, sale, "tv", 5, 0, 0)
}

func TestRedisThatSendsGarbage(t *testing.T) {
	wantOutage(t, refusingServer(t, ":42\r\n"), "unexpected reply")
	wantOutage(t, refusingServer(t, "*1\r\n$2\r\nok\r\n"), "unexpected reply")
	wantOutage(t, refusingServer(t, "*6\r\n$2\r\nok\r\n*0\r\n*0\r\n*0\r\n*0\r\n*0\r\n"), "unexpected reply")
	wantOutage(t, refusingServer(t, "$-1\r\n"), "unexpected reply")
	wantOutage(t, refusingServer(t, "garbage\r\n"), "")
}

// wantOutage wants an error from every guard, and nobody let in.
func wantOutage(t *testing.T, rdb Client, text string) {
	t.Helper()
	e := New(rdb, WithObserver(ignore{}), WithDeadline(time.Second), WithoutBreaker())
	for _, g := range []Guard{
		e.SlidingWindow("w", PerHour(5)), e.FixedWindow("f", PerHour(5)), e.TokenBucket("b", PerHour(5)),
		e.Votes("v", VoteOptions{}), e.Seckill("s", SeckillOptions{}), e.RedPacket("r", RedPacketOptions{}),
	} {
		d, err := g.Check(t.Context(), Attempt{Actor: "ann", Resource: "tv"})
		if err == nil || d.Allowed || isInvalid(err) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %+v, %v, want an error with %q", g.Name(), d, err, text)
		}
		if d.Guard != g.Name() || d.Attempt.ID == "" {
			t.Errorf("%+v: the decision beside an error has the attempt", d)
		}
	}
}

// refusingServer answers every command of a script with the same bytes.
func refusingServer(t *testing.T, answer string) *redis.Client {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				buffer := make([]byte, 4096)
				for {
					n, err := conn.Read(buffer)
					if err != nil {
						return
					}
					request := strings.ToLower(string(buffer[:n]))
					if strings.Contains(request, "eval") {
						_, err = io.WriteString(conn, answer)
					} else { // HELLO and the like: not known here
						_, err = io.WriteString(conn, strings.Repeat("-ERR unknown command\r\n", strings.Count(request, "*")))
					}
					if err != nil {
						return
					}
				}
			})
		}
	})
	rdb := redis.NewClient(&redis.Options{Addr: listener.Addr().String(), DisableIdentity: true, MaxRetries: -1})
	t.Cleanup(func() {
		_ = rdb.Close()
		_ = listener.Close()
		all.Wait()
	})
	return rdb
}

// TestRestart kills a Redis that persists, and one that does not.
func TestRestart(t *testing.T) {
	for name, persistent := range map[string]bool{"persistent": true, "in memory": false} {
		t.Run(name, func(t *testing.T) {
			config := []string{"--appendonly", "no"}
			if persistent {
				config = []string{"--appendonly", "yes", "--appendfsync", "always"}
			}
			s := redistest.StartServer(t, config...)
			e := New(s.Client(t), WithDeadline(10*time.Second), WithObserver(ignore{}))
			window, votes, sale := e.SlidingWindow("w", PerHour(2)), e.Votes("v", VoteOptions{}), e.Seckill("s", SeckillOptions{})
			openSale(t, sale, "tv", Sale{Stock: 5})
			check(t, window, Attempt{Actor: "ann"})
			check(t, votes, Attempt{Actor: "ann", Resource: "p"})
			held := check(t, sale, Attempt{Actor: "ann", Resource: "tv"})

			s.Kill()
			if _, err := votes.Check(t.Context(), Attempt{Actor: "bob", Resource: "p"}); err == nil {
				t.Error("a vote without a Redis")
			}
			s.Start()

			// A limit's check is sent once, so the first after a restart may meet a connection that is dead.
			var d Decision
			redistest.Eventually(t, 10*time.Second, func() (ok bool) {
				var err error
				d, err = window.Check(t.Context(), Attempt{Actor: "ann"})
				return err == nil
			}, "the window decides again")
			vote := check(t, votes, Attempt{Actor: "ann", Resource: "p"})
			buy := check(t, sale, Attempt{Actor: "bob", Resource: "tv"})
			if persistent {
				wantReason(t, d, ReasonOK)
				if d.Remaining != 0 {
					t.Errorf("%+v: the log was lost", d)
				}
				wantReason(t, vote, ReasonDuplicate)
				wantReason(t, buy, ReasonOK)
				settle(t, sale, held, true)
				wantStatus(t, sale, "tv", 3, 1, 1)
			} else {
				wantReason(t, d, ReasonOK)
				wantReason(t, vote, ReasonOK)
				wantReason(t, buy, ReasonNotReady) // a lost sale is not a stock of any size
			}
		})
	}
}

// TestReshard moves a slot to another master while guards are at work on it. A rate limit has one key and goes on all the
// while. Votes and sales have several, some of them new: a cluster refuses such calls until the slot has moved, so they
// may fail, and nothing may be lost or counted twice.
func TestReshard(t *testing.T) {
	c := redistest.StartCluster(t)
	e := New(c.Client(t), WithDeadline(2*time.Second), WithObserver(ignore{}))
	window, votes, sale := e.SlidingWindow("w", PerHour(1000)), e.Votes("v", VoteOptions{}), e.Seckill("s", SeckillOptions{})
	redistest.Eventually(t, 10*time.Second, func() bool {
		_, err := sale.Open(t.Context(), "p", Sale{Stock: 100_000, PerBuyer: 100_000})
		return err == nil
	}, "the sale is open")

	slot := redistest.Slot(sale.saleKeys("p")[0])
	from, to := c.MasterOfSlot(slot), c.MasterOfSlot((slot+5461)%16384)
	if from == to {
		t.Fatal("both slots have one master")
	}

	// Two workers, each at it until the end; a failed vote or purchase is tried again under its ID.
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
	try := func(g Guard, a Attempt) error {
		d, err := g.Check(t.Context(), a)
		if err == nil && !d.Allowed {
			t.Errorf("%s: %+v", g.Name(), d)
		}
		return err
	}
	work(&voted, func(n int64) error {
		id := strconv.FormatInt(n, 10)
		return try(votes, Attempt{Actor: id, Resource: "p", ID: id})
	})
	work(&bought, func(n int64) error {
		id := strconv.FormatInt(n, 10)
		if err := try(sale, Attempt{Actor: "ann", Resource: "p", ID: id}); err != nil {
			return err
		}
		d, err := sale.Confirm(t.Context(), "p", id)
		if err == nil && !d.Allowed {
			t.Errorf("confirm: %+v", d)
		}
		return err
	})
	progress := func(what string, counts ...*atomic.Int64) {
		t.Helper()
		for _, count := range counts {
			begun := count.Load()
			redistest.Eventually(t, 20*time.Second, func() bool { return count.Load() >= begun+5 }, what)
		}
	}

	limit := func(remaining int64) {
		t.Helper()
		for range 5 {
			remaining--
			if d := check(t, window, Attempt{Actor: "p"}); d.Remaining != remaining {
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

	wantTally(t, votes, "p", map[string]int64{"": voted.Load()})
	if _, err := sale.Sweep(t.Context(), "p"); err != nil {
		t.Error(err)
	}
	wantStatus(t, sale, "p", 100_000-bought.Load(), 0, bought.Load())
}

// TestFailover kills the master of everything; its replica takes over, without the scripts.
func TestFailover(t *testing.T) {
	c := redistest.StartCluster(t)
	rdb := c.Client(t)
	e := New(rdb, WithDeadline(500*time.Millisecond), WithObserver(ignore{}))
	window, votes, sale := e.SlidingWindow("w", PerHour(1000)), e.Votes("v", VoteOptions{}), e.Seckill("s", SeckillOptions{})
	redistest.Eventually(t, 10*time.Second, func() bool {
		_, err := sale.Open(t.Context(), "p", Sale{Stock: 10})
		return err == nil
	}, "the sale is open")
	ann := check(t, sale, Attempt{Actor: "ann", Resource: "p"})
	check(t, votes, Attempt{Actor: "ann", Resource: "p"})
	slot := redistest.Slot(sale.saleKeys("p")[0])
	old := c.MasterOfSlot(slot)
	if n, err := old.Client(t).Wait(t.Context(), 1, 5*time.Second).Result(); n != 1 || err != nil {
		t.Fatalf("the replica has not got everything: %d, %v", n, err)
	}
	c.KillMasterOfSlot(slot)
	if _, err := sale.Check(t.Context(), Attempt{Actor: "bob", Resource: "p"}); err == nil {
		t.Error("a sale without a master")
	}
	c.AwaitFailover(slot, old)
	redistest.Eventually(t, 20*time.Second, func() bool {
		_, err := window.Check(t.Context(), Attempt{Actor: "p"})
		return err == nil
	}, "the guards decide again")
	var again Decision
	redistest.Eventually(t, 20*time.Second, func() (ok bool) {
		var err error
		again, err = votes.Check(t.Context(), Attempt{Actor: "ann", Resource: "p"})
		return err == nil
	}, "votes are decided again")
	wantReason(t, again, ReasonDuplicate)
	redistest.Eventually(t, 20*time.Second, func() bool { return sale.Settle(t.Context(), ann, true) == nil }, "the hold is confirmed")
	wantStatus(t, sale, "p", 9, 0, 1)
}

// TestLateReplyLeavesNoClaim has a Redis that is slower than the deadline: the caller hears an error, while the claim is made.
// Nobody may ask for it again, so it has to go by itself; and whoever asks again with the same operation ID gets it.
func TestLateReplyLeavesNoClaim(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		plain := newEngine(b)
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		slow := newEngine(b, WithDeadline(150*time.Millisecond))
		votes, sale := slow.Votes("v", VoteOptions{}), slow.Seckill("s", SeckillOptions{})
		seenVotes, seenSale := plain.Votes("v", VoteOptions{}), plain.Seckill("s", SeckillOptions{})
		openSale(t, seenSale, "p", Sale{Stock: 5})
		for _, g := range []Guard{votes, sale} { // connects, and loads the scripts
			redistest.Eventually(t, 10*time.Second, func() bool {
				d, err := g.Check(t.Context(), Attempt{Actor: "first", Resource: "p"})
				return err == nil && g.Settle(t.Context(), d, false) == nil
			}, "the guard decides")
		}

		faults.Delay(400 * time.Millisecond)
		for _, id := range []string{"", "given"} {
			for _, g := range []Guard{votes, sale} {
				if d, err := g.Check(t.Context(), Attempt{Actor: "ann " + id, Resource: "p", ID: id}); err == nil {
					t.Fatalf("%+v: want a deadline that is over", d)
				}
			}
		}
		faults.Delay(0)
		redistest.Eventually(t, 10*time.Second, func() bool {
			s, err := seenSale.Status(t.Context(), "p")
			return err == nil && s.Held == 0 && tally(t, seenVotes, "p")[""] == 0
		}, "the claims are gone")
		for _, g := range []Guard{seenVotes, seenSale} {
			wantReason(t, check(t, g, Attempt{Actor: "ann given", Resource: "p", ID: "given"}), ReasonOK)
		}
	})
}
