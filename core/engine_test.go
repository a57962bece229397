package core

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

func TestSetUpMistakesPanicWithTheRemedy(t *testing.T) {
	engine := func() *Engine { return New(nothing{}) }
	for text, mistake := range map[string]func(){
		"pass the application's":       func() { New(nil) },
		"the prefix is empty":          func() { WithPrefix("") },
		"has '{' in it":                func() { WithPrefix("a{b}") },
		"a minute at most":             func() { WithDeadline(time.Hour) },
		"more than 0":                  func() { WithDeadline(0) },
		"does not cover a retry":       func() { WithRetryHorizon(time.Millisecond) },
		"leave the option out":         func() { WithObserver(nil) },
		"or use WithoutBreaker":        func() { WithBreaker(BreakerOptions{Failures: -1}) },
		"Pause of a minute at most":    func() { WithBreaker(BreakerOptions{Pause: time.Hour}) },
		"none that is nil":             func() { Observers(LogErrors(), nil) },
		"at least one observer":        func() { Observers() },
		"a second at most":             func() { WithRefusalMemory(time.Second + 1) },
		"0 to ask Redis always":        func() { WithRefusalMemory(-1) },
		"guard's name is empty":        func() { engine().Votes("", VoteOptions{}) },
		"longer than 64":               func() { engine().Votes(strings.Repeat("x", 65), VoteOptions{}) },
		"lets nobody in":               func() { engine().SlidingWindow("w", PerMinute(0)) },
		"at most 10000":                func() { engine().SlidingWindow("w", PerDay(10_001)) },
		"keep the smaller":             func() { engine().SlidingWindow("w", PerDay(1), Per(2, 24*time.Hour)) },
		"whole milliseconds":           func() { engine().SlidingWindow("w", Per(1, time.Microsecond)) },
		"8784h0m0s":                    func() { engine().SlidingWindow("w", PerDay(1), Per(1, 367*24*time.Hour)) },
		"guard \"w\"":                  func() { engine().SlidingWindow("w", PerSecond(1), Per(-1, time.Hour)) },
		"in text 10001/24h/1000":       func() { engine().SlidingWindow("w", PerDay(10_001)) },
		"9007199254740991":             func() { engine().FixedWindow("w", PerDay(MaxAmount+1)) },
		"at most 10000000,":            func() { engine().TokenBucket("w", PerSecond(1), PerDay(10_000_001)) },
		"no function for its limits":   func() { engine().TokenBucketBy("w", nil) },
		"1 to 1000":                    func() { engine().Votes("v", VoteOptions{Poll: Poll{PerVoter: -1}}) },
		"is never open":                func() { engine().Votes("v", VoteOptions{Poll: Poll{Opens: time.Unix(2, 0), Closes: time.Unix(1, 0)}}) },
		"give 1 to 1000 (guard \"b\")": func() { engine().Bans("b", BanOptions{Refusals: 1001}) },
		"a ban after -1 refusals":      func() { engine().Bans("b", BanOptions{Refusals: -1}) },
		"a Period of -1s":              func() { engine().Bans("b", BanOptions{Period: -time.Second}) },
		"a First of 1µs":               func() { engine().Bans("b", BanOptions{First: time.Microsecond}) },
		"a Longest of 8808h0m0s":       func() { engine().Bans("b", BanOptions{Longest: 367 * 24 * time.Hour}) },
		"a Decay of 1.0005s":           func() { engine().Bans("b", BanOptions{Decay: time.Second + 500*time.Microsecond}) },
		"make First shorter":           func() { engine().Bans("b", BanOptions{First: time.Hour, Longest: time.Minute}) },
		"voters vote again":            func() { engine().Votes("v", VoteOptions{Keep: time.Millisecond}) },
		"give Keep days (guard \"s\"":  func() { engine().Seckill("s", SeckillOptions{Keep: -1}) },
		"refunds what is left":         func() { engine().RedPacket("r", RedPacketOptions{Keep: time.Millisecond}) },
		"script's name is empty":       func() { NewScript("", "return 1", Once) },
		"has no source":                func() { NewScript("x", " \n", Once) },
		"give Items 1 to 10000":        func() { engine().Quota("q", QuotaOptions{Period: Daily(time.UTC)}) },
		"quota of 10001 items":         func() { engine().Quota("q", QuotaOptions{Items: 10_001, Period: Daily(time.UTC)}) },
		"quota without a Period":       func() { engine().Quota("q", QuotaOptions{Items: 1}) },
		"return one that it is in": func() {
			engine().Quota("q", QuotaOptions{Items: 1, Period: func(t time.Time) (begins, ends time.Time) { return t, t }})
		},
		"pass time.UTC":    func() { Daily(nil) },
		"begin on a day":   func() { Weekly(time.UTC, 7) },
		"1s to 8784h0m0s":  func() { Every(time.Millisecond) },
		"Every(8784h0m1s)": func() { Every(MaxTTL + time.Second) },
		"Every(1.0005s)":   func() { Every(1000500 * time.Microsecond) },
		"two guards are named \"a\"": func() {
			e := engine()
			e.SlidingWindow("a", PerMinute(1))
			e.Votes("a", VoteOptions{})
		},
	} {
		t.Run(text, func(t *testing.T) { wantPanic(t, text, mistake) })
	}
}

func TestConstructorsDoNotTalkToRedis(t *testing.T) {
	e := New(nothing{})
	for _, k := range kinds {
		k.make(e, k.name, PerSecond(1), PerHour(10))
		k.by(e, k.name+"By", func(context.Context, Attempt) ([]Limit, error) { panic("there is no attempt yet") })
	}
	e.Bans("b", BanOptions{})
	e.Votes("v", VoteOptions{})
	e.Seckill("s", SeckillOptions{})
	e.RedPacket("r", RedPacketOptions{})
	e.Quota("q", QuotaOptions{Items: 1, Period: Daily(time.UTC)})
	e.Idempotency("i", IdempotencyOptions{})
}

func TestGuardsWithDifferentNamesShareNothing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		e := newEngine(b)
		for _, g := range []Guard{e.SlidingWindow("a", PerHour(1)), e.SlidingWindow("b", PerHour(1)), e.SlidingWindow("c", PerHour(2))} {
			wantReason(t, check(t, g, Attempt{Actor: "x"}), ReasonOK)
		}
	})
}

// every runs one call of each kind of guard and fails on any error.
func every(t *testing.T, e *Engine) func(actor string) {
	t.Helper()
	window, votes, sale := e.SlidingWindow("w", PerHour(5)), e.Votes("v", VoteOptions{}), e.Seckill("s", SeckillOptions{})
	fixed, bucket := e.FixedWindow("f", PerHour(5)), e.TokenBucket("b", PerHour(5))
	bans := e.Bans("bans", BanOptions{Refusals: 1})
	packets := e.RedPacket("r", RedPacketOptions{})
	quota := e.Quota("q", QuotaOptions{Items: 5, Period: Daily(time.UTC)})
	once := e.Idempotency("i", IdempotencyOptions{})
	openSale(t, sale, "tv", Sale{Stock: 1000})
	createPacket(t, packets, "tv", Packet{Total: 1000, Shares: 10, Expires: time.Now().Add(time.Minute)})
	return func(actor string) {
		t.Helper()
		for _, g := range []Guard{window, fixed, bucket, votes, sale, packets} {
			d := check(t, g, Attempt{Actor: actor, Resource: "tv"})
			wantReason(t, d, ReasonOK)
			settle(t, g, d, actor != "fails")
		}
		for _, g := range []rateLimit{window, fixed, bucket} {
			peek(t, g, Attempt{Actor: actor, Resource: "tv"})
			refund(t, g, check(t, g, Attempt{Actor: actor, Resource: "tv"}))
			if err := g.Reset(t.Context(), Attempt{Actor: actor, Resource: "tv"}); err != nil {
				t.Fatal(err)
			}
		}
		wantReason(t, check(t, bans, Attempt{Actor: actor}), ReasonOK)
		strikeOut(t, bans, Attempt{Actor: actor})
		ban(t, bans, Attempt{Actor: actor}, time.Hour)
		if got := status(t, bans, Attempt{Actor: actor}); got.Left < time.Minute {
			t.Fatalf("banned for an hour: %+v", got)
		}
		unban(t, bans, Attempt{Actor: actor})
		if _, err := sale.Status(t.Context(), "tv"); err != nil {
			t.Fatal(err)
		}
		tally(t, votes, "tv")
		if _, err := sale.Sweep(t.Context(), "tv"); err != nil {
			t.Fatal(err)
		}
		if _, err := packets.Refund(t.Context(), "tv"); !errors.Is(err, ErrPacketOpen) {
			t.Fatal(err)
		}
		if _, err := packets.Audit(t.Context(), "tv"); err != nil {
			t.Fatal(err)
		}
		d := check(t, quota, Attempt{Actor: actor, Item: "a7"})
		wantReason(t, d, ReasonOK)
		settle(t, quota, d, actor != "fails")
		if _, _, err := quota.Used(t.Context(), Attempt{Actor: actor}); err != nil {
			t.Fatal(err)
		}
		if err := quota.Reset(t.Context(), Attempt{Actor: actor}); err != nil {
			t.Fatal(err)
		}
		operation := Attempt{Actor: actor, ID: "o1"}
		d = check(t, once, operation)
		wantReason(t, d, ReasonOK)
		settle(t, once, d, actor != "fails")
		if err := once.Reset(t.Context(), operation); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEveryKindOfClient(t *testing.T) {
	single := redistest.Single(t)
	for name, client := range map[string]func(t *testing.T) Client{
		"deadline obeyed": func(t *testing.T) Client {
			options := single.Options()
			options.ContextTimeoutEnabled = true
			return closing(t, redis.NewClient(options.Simple()))
		},
		"ring": func(t *testing.T) Client {
			return closing(t, redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": single.Options().Addrs[0]}}))
		},
		"auto-pipelining": func(t *testing.T) Client {
			ap, err := single.NewClient(t).AutoPipeline()
			if err != nil {
				t.Fatal(err)
			}
			return closing(t, ap)
		},
		"asynchronous auto-pipelining": func(t *testing.T) Client {
			ap, err := single.NewClient(t).AsyncAutoPipeline()
			if err != nil {
				t.Fatal(err)
			}
			return closing(t, ap)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := New(client(t), WithPrefix(redistest.Single(t).Prefix), WithDeadline(10*time.Second))
			if err := e.Preload(t.Context()); err != nil {
				t.Fatal(err)
			}
			attempt := every(t, e)
			attempt("ann")
			attempt("fails")
		})
	}
}

type closer interface {
	Client
	Close() error
}

func closing(t *testing.T, c closer) Client {
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestScriptFlushIsInvisible(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		flush := func() {
			if err := b.ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error {
				return c.ScriptFlush(ctx).Err()
			}); err != nil {
				t.Fatal(err)
			}
		}
		e := newEngine(b)
		e.rdb = flushing{e.rdb, flush}
		attempt := every(t, e)
		attempt("ann")
		attempt("fails")
	})
}

// flushing is a client whose server forgets its scripts before every call by digest.
type flushing struct {
	Client
	flush func()
}

func (c flushing) Process(ctx context.Context, cmd redis.Cmder) error {
	if cmd.Name() == "evalsha" {
		c.flush()
	}
	return c.Client.Process(ctx, cmd)
}

func TestPreloadReachesEveryMaster(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		e := newEngine(b)
		e.Votes("v", VoteOptions{})
		onMasters := func(f func(ctx context.Context, c *redis.Client) error) {
			t.Helper()
			if err := b.ForEachMaster(t.Context(), f); err != nil {
				t.Fatal(err)
			}
		}
		onMasters(func(ctx context.Context, c *redis.Client) error { return c.ScriptFlush(ctx).Err() })
		if err := e.Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		onMasters(func(ctx context.Context, c *redis.Client) error {
			found, err := c.ScriptExists(ctx, voteScript.SHA(), voteUndoScript.SHA()).Result()
			if err == nil && (!found[0] || !found[1]) {
				t.Errorf("%s knows %v of the scripts", c.Options().Addr, found)
			}
			return err
		})
	})
}

func TestPreloadSaysWhatIsWrong(t *testing.T) {
	e := New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1}))
	e.Votes("v", VoteOptions{})
	if err := e.Preload(t.Context()); err == nil || !strings.Contains(err.Error(), "core: preload script vote") {
		t.Errorf("Preload: %v", err)
	}
}

func TestObserverHearsEverything(t *testing.T) {
	b := redistest.Mini(t)
	var h heard
	e := newEngine(b, WithObserver(&h))
	every(t, e)("fails")
	b.Mini.SetError("LOADING the dog ate it")
	if _, err := e.SlidingWindow("w2", PerHour(1)).Check(t.Context(), Attempt{Actor: "x"}); err == nil {
		t.Fatal("no error")
	}
	b.Mini.SetError("")
	var ops []string
	for _, event := range h.events {
		ops = append(ops, event.Guard+" "+event.Op)
	}
	want := "s open, r create, w check, w settle, f check, f settle, b check, b settle, v check, v settle, s check, s cancel, r check, " +
		"w peek, w check, w refund, w reset, f peek, f check, f refund, f reset, b peek, b check, b refund, b reset, " +
		"bans check, bans strike, bans strike, bans ban, bans status, bans unban, s status, v tally, s sweep, r refund, r audit, " +
		"q check, q settle, q used, q reset, i check, i settle, i reset, w2 check"
	if got := strings.Join(ops, ", "); got != want {
		t.Errorf("heard %s\nwant  %s", got, want)
	}
	last := h.events[len(h.events)-1]
	if last.Err == nil || !strings.Contains(last.Err.Error(), `core: check "w2": script sliding_window: `) || last.Took <= 0 {
		t.Errorf("%+v", last)
	}
}

func TestErrorsAreLoggedOnceASecond(t *testing.T) {
	var log bytes.Buffer
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	o := LogErrors()
	for range 100 {
		o.Observe(t.Context(), Event{Guard: "w", Op: "check", Err: errors.New("down")})
	}
	o.Observe(t.Context(), Event{Guard: "w", Op: "check"})
	for _, err := range []error{ErrInvalidAttempt, ErrTooFewLeft, ErrNoSale} { // for who asked, not for the log
		o.Observe(t.Context(), Event{Guard: "s", Op: "restock", Err: fmt.Errorf("core: restock: %w", err)})
	}
	LogAgain(o)
	o.Observe(t.Context(), Event{Guard: "w", Op: "check", Err: errors.New("down")})
	if n := strings.Count(log.String(), "level=WARN"); n != 2 || !strings.Contains(log.String(), "errors_not_logged=99") {
		t.Errorf("%d lines: %s", n, log.String())
	}
}
