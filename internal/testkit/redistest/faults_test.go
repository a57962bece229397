package redistest

import (
	"context"
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// counter sets a counter to 0 and returns its key.
func counter(t *testing.T, b Backend) string {
	t.Helper()
	key := b.Prefix + ":n"
	if err := b.Client.Set(t.Context(), key, 0, time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	return key
}

func value(t *testing.T, b Backend, key string) int {
	t.Helper()
	n, err := b.Client.Get(t.Context(), key).Int()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestUnarmedFaultsChangeNothing(t *testing.T) {
	Each(t, func(t *testing.T, b Backend) {
		f := NewFaults(t)
		c, key := b.NewClientWith(t, f), counter(t, b)
		cmds, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for range 100 {
				p.Incr(t.Context(), key)
			}
			p.Set(t.Context(), key+":long", string(make([]byte, 1<<20)), time.Minute)
			p.Get(t.Context(), key+":long")
			p.Get(t.Context(), key+":missing")
			return nil
		})
		if !errors.Is(err, redis.Nil) || cmds[99].(*redis.IntCmd).Val() != 100 ||
			len(cmds[101].(*redis.StringCmd).Val()) != 1<<20 {
			t.Errorf("pipeline: %v, %v", err, cmds[99])
		}
		if f.Swallowed() != 0 {
			t.Errorf("Swallowed = %d", f.Swallowed())
		}
	})
}

// The measured danger: with its default retries go-redis sends the INCR again
// when the reply is lost, and it counts twice.
func TestASwallowedIncrCountsTwiceWithDefaultRetries(t *testing.T) {
	Each(t, func(t *testing.T, b Backend) {
		f := NewFaults(t)
		c, key := b.NewClientWith(t, f), counter(t, b)
		f.SwallowReply("incr")
		if n, err := c.Incr(t.Context(), key).Result(); n != 2 || err != nil {
			t.Errorf("INCR = %d, %v; want 2 from the second sending", n, err)
		}
		if n := value(t, b, key); n != 2 || f.Swallowed() != 1 {
			t.Errorf("value %d, swallowed %d; want 2 and 1", n, f.Swallowed())
		}
	})
}

func TestASwallowedRequestIsExecutedExactlyOnce(t *testing.T) {
	noRetries := func(o *redis.UniversalOptions) { o.MaxRetries, o.MaxRedirects = -1, -1 }
	Each(t, func(t *testing.T, b Backend) {
		f := NewFaults(t)
		c, key := b.NewClientWith(t, f, noRetries), counter(t, b)
		for i := range 20 {
			f.SwallowReply("InCr")
			if err := c.Incr(t.Context(), key).Err(); err == nil {
				t.Fatal("the client saw a reply")
			}
			if n := value(t, b, key); n != i+1 || f.Swallowed() != i+1 {
				t.Fatalf("value %d, swallowed %d; want %d", n, f.Swallowed(), i+1)
			}
		}
		if n, err := c.Incr(t.Context(), key).Result(); n != 21 || err != nil {
			t.Errorf("unarmed again: %d, %v", n, err)
		}
	})
}

func TestShotsQueueUpAndSpareOtherCommands(t *testing.T) {
	b, f := Mini(t), NewFaults(t)
	c, key := b.NewClientWith(t, f), counter(t, b)
	f.SwallowReplies("incr", 2)
	f.SwallowReply("incr")
	if err := c.Get(t.Context(), key).Err(); err != nil {
		t.Error(err)
	}
	if n, err := c.Incr(t.Context(), key).Result(); n != 4 || err != nil {
		t.Errorf("INCR = %d, %v; want 4 from the fourth sending", n, err)
	}
	if f.Swallowed() != 3 {
		t.Errorf("Swallowed = %d, want 3", f.Swallowed())
	}
}

// In a pipeline the replies before the swallowed one arrive (go-redis then still
// marks every command of the pipeline as failed).
func TestSwallowInsideAPipeline(t *testing.T) {
	b, f := Single(t), NewFaults(t)
	c := b.NewClientWith(t, f, func(o *redis.UniversalOptions) { o.MaxRetries = -1 })
	key := counter(t, b)
	f.SwallowReply("decr")
	cmds, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		p.IncrBy(t.Context(), key, 10)
		p.Decr(t.Context(), key)
		return nil
	})
	if err == nil || cmds[0].(*redis.IntCmd).Val() != 10 || cmds[1].(*redis.IntCmd).Val() != 0 {
		t.Errorf("%v: %v", err, cmds)
	}
	if n := value(t, b, key); n != 9 {
		t.Errorf("value %d, want 9", n)
	}
}

func TestSwallowEveryIsSeeded(t *testing.T) {
	b := Mini(t)
	run := func() int {
		f := NewFaults(t)
		f.SwallowEvery("incr", 0.5, rand.New(rand.NewPCG(1, 2)))
		c := b.NewClientWith(t, f, func(o *redis.UniversalOptions) { o.MaxRetries = -1 })
		key, failed := counter(t, b), 0
		for range 50 {
			if c.Incr(t.Context(), key).Err() != nil {
				failed++
			}
		}
		if n := value(t, b, key); n != 50 || failed != f.Swallowed() {
			t.Errorf("value %d, failed %d, swallowed %d", n, failed, f.Swallowed())
		}
		return failed
	}
	if x, y := run(), run(); x != y || x < 10 || x > 40 {
		t.Errorf("%d and %d swallowed of 50", x, y)
	}
}

func TestDelayHoldsEachReplyBack(t *testing.T) {
	b, f := Mini(t), NewFaults(t)
	c := b.NewClientWith(t, f)
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	const d = 60 * time.Millisecond
	f.Delay(d)
	start := time.Now()
	if err := c.Ping(t.Context()).Err(); err != nil || time.Since(start) < d {
		t.Errorf("PING took %v, %v; want at least %v", time.Since(start), err, d)
	}
	f.Delay(0)
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}

func TestHangExecutesAndNeverAnswers(t *testing.T) {
	t.Parallel()
	EachReal(t, func(t *testing.T, b Backend) {
		f := NewFaults(t)
		c := b.NewClientWith(t, f, func(o *redis.UniversalOptions) {
			o.ContextTimeoutEnabled, o.MaxRetries = true,
				-1
		})
		key := counter(t, b)
		if err := c.Incr(t.Context(), key).Err(); err != nil {
			t.Fatal(err)
		}
		f.Hang(true)
		Eventually(t, 10*time.Second, func() bool { // on a busy machine a request may not leave in time
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if err := c.Incr(ctx, key).Err(); err == nil {
				t.Error("a reply came through")
			}
			return value(t, b, key) > 1
		}, "a request to be executed")
		f.Hang(false)
		if n, err := c.Incr(t.Context(), key).Result(); n < 3 || err != nil {
			t.Errorf("after Hang(false): %d, %v", n, err)
		}
	})
}

func TestARequestThatIsHeldBackArrivesLater(t *testing.T) {
	Each(t, func(t *testing.T, b Backend) {
		f := NewFaults(t)
		c, key := b.NewClientWith(t, f), counter(t, b)
		f.HoldBack("INCR")
		if n, err := c.Incr(t.Context(), key).Result(); n != 1 || err != nil {
			t.Errorf("INCR = %d, %v; want 1 from the second sending", n, err)
		}
		if replies := f.Deliver(t, 1); replies[0] != ":2\r\n" || value(t, b, key) != 2 {
			t.Errorf("%q, and %d: want 2", replies, value(t, b, key))
		}
		f.Deliver(t, 0)
	})
}

func TestRefuseAndCutAll(t *testing.T) {
	b, f := Mini(t), NewFaults(t)
	c := b.NewClientWith(t, f, func(o *redis.UniversalOptions) { o.MaxRetries, o.DialerRetries = -1, 1 })
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	f.Refuse(true)
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Errorf("Refuse hurt a present connection: %v", err)
	}
	f.CutAll()
	Eventually(t, 5*time.Second, func() bool {
		return errors.Is(c.Ping(t.Context()).Err(),
			syscall.ECONNREFUSED)
	}, "dials to be refused")
	f.Heal()
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Errorf("after Heal: %v", err)
	}
}

func TestDialReportsADeadServer(t *testing.T) {
	s := StartServer(t)
	s.Kill()
	if _, err := NewFaults(t).Dial(t.Context(), "tcp", s.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("Dial = %v, want ECONNREFUSED", err)
	}
}
